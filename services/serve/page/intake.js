// What became of the samples that came in, in one line: what was refused or too late must not pass unseen.
const KINDS = { accepted: "accepted", duplicates: "sent twice", late: "too late" };

const count = (number) => number.toLocaleString("en");
const sum = (numbers) => numbers.reduce((total, number) => total + (number ?? 0), 0);

// `components` as of /status; those that report no samples (the retrainer, the gateway) are passed over.
export function intakeText(components) {
  const shards = Object.values(components).filter((figures) => figures.accepted !== undefined);
  if (!shards.length) return "";
  const parts = Object.entries(KINDS).map(([kind, said]) => `${count(sum(shards.map((shard) => shard[kind])))} ${said}`);
  const reasons = {};
  for (const shard of shards) {
    for (const [reason, number] of Object.entries(shard.rejected ?? {})) reasons[reason] = (reasons[reason] ?? 0) + number;
  }
  const named = Object.entries(reasons).sort().map(([reason, number]) => `${reason.replaceAll("_", " ")} ${count(number)}`);
  parts.push(`${count(sum(Object.values(reasons)))} refused${named.length ? ` (${named.join(", ")})` : ""}`);
  return `Samples: ${parts.join(" · ")}`;
}
