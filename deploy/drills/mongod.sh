# On each of three hosts. BIND: the address of this host; on the first one also localhost, for the set-up below.
mkdir -p "$DATA/mongodb"
exec mongod --replSet lcm --bind_ip "$BIND" --unixSocketPrefix "$DATA" --dbpath "$DATA/mongodb" --keyFile mongo.key \
  --tlsMode requireTLS --tlsCertificateKeyFile server.pem --tlsCAFile ca.crt --tlsAllowConnectionsWithoutCertificates
