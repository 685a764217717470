// Shows one figure of a model's page where this script stands in the page of a course or a blog.
const script = document.currentScript as HTMLScriptElement;
const { model = "", figure = "plate" } = script.dataset;
const page = new URL(`models/${encodeURIComponent(model)}.html`, script.src);
page.hash = new URLSearchParams({ embed: figure }).toString();
const frame = document.createElement("iframe");
frame.src = page.href;
frame.title = `${model}: ${figure}`;
frame.width = "100%";
frame.height = "480";
frame.setAttribute("frameborder", "0");
addEventListener("message", ({ source, origin, data }: MessageEvent<unknown>) => {
	if (source !== frame.contentWindow || origin !== page.origin) return;
	const { llamathHeight: height } = (data ?? {}) as { llamathHeight?: unknown };
	if (typeof height === "number" && height > 0 && height <= 8000)
		frame.height = String(Math.ceil(height));
});
// where a policy forbids the frame, the link in the markup stays alone
document.addEventListener("securitypolicyviolation", (event) => {
	const isForbidden = event.disposition === "enforce" && event.effectiveDirective === "frame-src";
	if (isForbidden && event.blockedURI.startsWith(page.origin)) frame.remove();
});
script.after(frame);

export {};
