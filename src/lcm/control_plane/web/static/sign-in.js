// A sign-in link carries its code after #, so that it is in no log; it is posted from here and taken from the address.
const code = location.hash.slice(1);
if (/^[0-9a-f]{16,}$/.test(code)) {
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("code").value = code;
  document.getElementById("link").submit();
}
