// Once, on the first host: mongosh --tls --tlsCAFile ca.crt --host localhost replica-set.js
const env = process.env
// Any member may be elected, but only the one on this host lets us in: until there are users it has precedence.
const members = [env.HOST1, env.HOST2, env.HOST3].map((host, n) => ({_id: n, host: `${host}:27017`, priority: n ? 1 : 2}))
rs.initiate({_id: "lcm", members})
// The server closes connections while it becomes primary.
const isPrimary = () => { try { return db.hello().isWritablePrimary } catch (error) { return false } }
const limit = Date.now() + 180000
while (!isPrimary()) {
  if (Date.now() > limit) throw new Error("MongoDB on the first host is not primary after 3 minutes; see its log")
  sleep(200)
}
const admin = db.getSiblingDB("admin")
admin.createUser({user: "root", pwd: env.ROOT_PASSWORD, roles: ["root"]})
admin.auth("root", env.ROOT_PASSWORD)
admin.createUser({user: "lcm", pwd: env.LCM_PASSWORD, roles: [{role: "readWrite", db: "lcm"}]})
admin.createUser({user: "backup", pwd: env.BACKUP_PASSWORD, roles: ["backup", "restore"]})
const config = rs.conf()
config.members[0].priority = 1
rs.reconfig(config)
