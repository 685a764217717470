// What Python sent.
export const data = JSON.parse(document.getElementById("data").textContent);
export const texts = data.words;
