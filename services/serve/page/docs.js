// The API's description for people, read from /openapi.json; nothing comes from another address.
import { h, put } from "./dom.js";

const METHODS = ["get", "post", "put", "patch", "delete"];

const idOf = (method, path) => `${method}-${path}`.replace(/[^a-z0-9]+/gi, "-");
const refName = (schema) => schema?.$ref?.split("/").at(-1);

// "list of ForecastPoint", "text or null": what a value may be, in a few words.
function kind(schema) {
  if (!schema || schema === true) return "anything"; // "additionalProperties": true
  const name = refName(schema);
  if (name) return h("a", { href: `#schema-${name}` }, name);
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return several.flatMap((one, index) => [index ? " or " : "", kind(one)]);
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.type === "array") return ["list of ", kind(schema.items)];
  if (schema.type === "object" && schema.additionalProperties) return ["table of ", kind(schema.additionalProperties)];
  const words = { string: "text", integer: "whole number", number: "number", boolean: "true or false", null: "null", object: "object" };
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  const range = [low !== undefined ? `from ${low}` : "", high !== undefined ? `up to ${high}` : "", schema.default !== undefined ? `usually ${JSON.stringify(schema.default)}` : ""].filter(Boolean).join(", ");
  return `${words[schema.type] ?? "anything"}${range ? ` (${range})` : ""}`;
}

function content(found) {
  return Object.entries(found?.content ?? {}).map(([type, { schema, example, examples }]) => h("div", {}, h("code", {}, type), schema && Object.keys(schema).length ? [": ", kind(schema)] : "",
    example ?? Object.values(examples ?? {})[0]?.value ? h("details", {}, h("summary", {}, "Example"), h("pre", { class: "scroll", tabindex: "0" }, JSON.stringify(example ?? Object.values(examples)[0].value, null, 1))) : null));
}

function call(path, method, said) {
  const parameters = (said.parameters ?? []).map((one) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, one.name), one.required ? " *" : ""), h("td", { class: "text" }, one.in), h("td", { class: "text" }, kind(one.schema)), h("td", { class: "text" }, one.description ?? one.schema?.description ?? "")));
  return h("section", { id: idOf(method, path) }, h("h3", {}, h("code", {}, `${method.toUpperCase()} ${path}`)), (said.description ?? said.summary ?? "").split("\n\n").map((one) => h("p", {}, one)),
    parameters.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Parameters of ${method} ${path}` }, h("table", {}, h("thead", {}, h("tr", {}, ["Parameter", "In", "Kind", ""].map((one) => h(one ? "th" : "td", { class: "text", scope: one ? "col" : null }, one)))), h("tbody", {}, parameters))) : null,
    said.requestBody ? [h("h4", {}, "Body"), content(said.requestBody)] : null,
    h("h4", {}, "Answers"), h("ul", {}, Object.entries(said.responses).map(([status, one]) => h("li", {}, h("strong", {}, status), ` ${one.description ?? ""} `, content(one)))));
}

function schema(name, said) {
  const rows = Object.entries(said.properties ?? {}).map(([field, one]) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, field), said.required?.includes(field) ? " *" : ""), h("td", { class: "text" }, kind(one)), h("td", { class: "text" }, one.description ?? "")));
  return h("section", { id: `schema-${name}` }, h("h3", {}, name), said.description ? h("p", {}, said.description) : null, rows.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, h("table", {}, h("tbody", {}, rows))) : h("p", {}, kind(said)));
}

async function show() {
  const box = document.getElementById("view");
  try {
    const said = await (await fetch("openapi.json")).json();
    const calls = Object.entries(said.paths).flatMap(([path, methods]) => METHODS.filter((one) => methods[one]).map((one) => [path, one, methods[one]]));
    put(box, h("section", {}, h("h2", {}, `${said.info.title} ${said.info.version}`), h("p", { class: "lead" }, said.info.summary ?? ""), h("p", {}, said.info.description ?? ""), h("p", { class: "soft" }, "Fields with * are always there."),
      h("ul", {}, calls.map(([path, method]) => h("li", {}, h("a", { href: `#${idOf(method, path)}` }, h("code", {}, `${method.toUpperCase()} ${path}`)))))),
    calls.map(([path, method, one]) => call(path, method, one)), h("h2", {}, "Structures"), Object.entries(said.components?.schemas ?? {}).map(([name, one]) => schema(name, one)));
    document.getElementById(location.hash.slice(1))?.scrollIntoView();
  } catch (error) {
    put(box, h("p", { class: "note bad" }, `The description could not be read: ${error.message}`));
  }
}

show();
