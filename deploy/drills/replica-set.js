// Once, on the first host: mongosh --tls --tlsCAFile ca.crt --host localhost replica-set.js
const env = process.env
rs.initiate({_id: "lcm", members: [env.HOST1, env.HOST2, env.HOST3].map((host, n) => ({_id: n, host: `${host}:27017`}))})
// The server closes connections while it becomes primary.
const isPrimary = () => { try { return db.hello().isWritablePrimary } catch (error) { return false } }
while (!isPrimary()) sleep(200)
const admin = db.getSiblingDB("admin")
admin.createUser({user: "root", pwd: env.ROOT_PASSWORD, roles: ["root"]})
admin.auth("root", env.ROOT_PASSWORD)
admin.createUser({user: "lcm", pwd: env.LCM_PASSWORD, roles: [{role: "readWrite", db: "lcm"}]})
admin.createUser({user: "backup", pwd: env.BACKUP_PASSWORD, roles: ["backup", "restore"]})
