// The addresses of the views: #/zone/SITE/ZONE and so on.
export const addressOf = (name, key) => (key ? `#/${name}/${key.split("/").map(encodeURIComponent).join("/")}` : `#/${name}`);
