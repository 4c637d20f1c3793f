// Searches the documents. The theme's own search needs a server; this one works in pages from files.
"use strict";
addEventListener("DOMContentLoaded", () => {
  const field = document.querySelector("#rtd-search-form input[name=q]");
  if (!field || typeof searchIndex === "undefined") return;
  const found = document.createElement("div");
  found.id = "found";
  field.form.after(found);
  field.form.addEventListener("submit", event => event.preventDefault());
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(word => word.length > 1);
    const rank = entry => words.every(word => entry.title.toLowerCase().includes(word)) ? 0 : 1;
    const hits = !words.length ? [] : searchIndex.docs
      .filter(entry => words.every(word => (entry.title + " " + entry.text).toLowerCase().includes(word)))
      .sort((a, b) => rank(a) - rank(b));
    found.replaceChildren(...hits.slice(0, 20).map(entry => {
      const link = document.createElement("a");
      link.href = base_url + "/" + entry.location;
      link.textContent = entry.title;
      return link;
    }));
  });
});
