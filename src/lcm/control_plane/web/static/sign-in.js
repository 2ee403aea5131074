// A sign-in link carries its code after #, so that no log contains it. It is removed from the URL and posted.
const code = location.hash.slice(1);
if (/^[0-9a-f]{16,}$/.test(code)) {
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("code").value = code;
  document.getElementById("link").submit();
}
