# In an empty folder, with bash. HOSTS: the names and addresses of all hosts, as "DNS:etcd1,IP:10.0.0.1,…".
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=LCM CA" \
  -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.crt
issue() { # issue NAME DNS-NAMES
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/O=LCM/CN=$1" -keyout "$1.key" -out "$1.csr"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out "$1.crt" \
    -extfile <(printf "subjectAltName=$2\nextendedKeyUsage=serverAuth,clientAuth\nauthorityKeyIdentifier=keyid")
}
issue server "$HOSTS,DNS:localhost"            # of etcd, MongoDB and the balancer
issue lcm "DNS:lcm"                            # the client certificate of every LCM service
cat server.crt server.key > server.pem         # as MongoDB and haproxy read it
openssl rand -base64 700 > mongo.key           # shared by the members of MongoDB
chmod 600 ./*.key server.pem
