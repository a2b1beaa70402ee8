// Shows one question of a HAI Flow server in this page, with tokens of its backend (backend.py is such a one).

import { tokens } from "./tokens.js";

const query = new URLSearchParams(location.search);
const token = tokens();
const element = document.querySelector("hai-approval");

element.addEventListener("hai-decided", ({ detail }) => {
  document.querySelector("#outcome").textContent = `Outcome: ${detail.status}`;
});
element.addEventListener("hai-token-needed", async () => {
  element.token = await token();
});
element.setAttribute("pending", query.get("pending"));
// In a page of your own: <script type="module" src="https://flow.example.com/console/elements.js" crossorigin></script>
await import(`${query.get("url")}/console/elements.js`);
