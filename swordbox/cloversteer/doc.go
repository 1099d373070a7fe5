// Package cloversteer steers requests of the store Clover to the newest node of their key: a client
// that knows an old node appends and reads without a walk along the chain (SwordBox §7).
//
// How it works. A data WRITE shows which key a node belongs to. An append is a CAS on the header of
// a node that has no successor; the handle in its swap operand names the appended node, so that
// threads may share a queue pair. When an append has succeeded, its node is the tail of its key.
// Later appends and READs that name a node known to be older get the address of the tail, and the
// tail's version in their operands. PSNs, R_Keys and connections stay as they are.
//
// Why that is correct:
//
//   - A request is steered only to a node whose append the server has acknowledged, so no client
//     learns of an append that is not reachable. The appends to one key go to the server one after
//     the other. The others wait in the switch, at most for Config.Hold, and then go unchanged to
//     the node that their client named: that is Clover without steering, which is always correct.
//     So an append waits no longer than that for one of a dead client. READs of the key wait with
//     the appends and are sent before the next one: sent at once, they would find a node that has a
//     successor by then. A waiting request is sent at once when its connection has another request.
//   - An append that has succeeded absorbs those that waited when it was sent: each makes its own
//     node point to the appended one instead (absorb.go).
//   - A request is steered only if the tail has the length and R_Key of the node that the client
//     named, is on the same server, and has a version that is not lower. If its version is higher,
//     the response is translated: it shows the version that the client knows. A response of several
//     packets cannot be translated, so such a READ is steered only to a tail of the same version.
//     Only the tail's own version is translated. An entry that has been reused since has a still
//     higher version and so never looks like the node that the client named, whether or not the
//     switch remembers.
//   - If a translated response is lost in a crash of the switch, the client sees a version that it
//     does not know. After an append it must then find out whether its node was linked; after a
//     READ it asks the metadata server. Package clover does both.
//   - Nodes are ordered: an append that was sent when the tail was known to be linked comes after
//     it. Where the order of two nodes is not known, no request is steered from one to the other,
//     so readers do not go in circles.
//   - When the switch sees a request that it does not understand, it forgets the tail of the key.
//     Forgetting is always correct.
//
// A client must not conclude from the header of the node that it named that a lost append did not
// happen (package clover does not). Before it looks for its node in the chain, on another
// connection, it sends a WRITE of no bytes to the node: the switch then forgets which key the node
// belongs to, and sends a waiting or later copy of the append to no other node than the named one.
//
// Hot keys are found by a count-min sketch, whose counts are halved regularly, and a bounded table
// (rule keys=hot:N). For other keys no request is steered, but their chains are followed.
//
// The switch learns where nodes are from the store's superblocks, which the metadata server writes
// and which each client reads when it connects. All tables are bounded, and empty after a restart.
//
//	machine.go   the switch program's calls
//	request.go   decisions about appends and READs; flow.go: the decisions of a connection by PSN
//	waiting.go   requests that wait for the append in flight
//	absorb.go    waiting appends that another one has overwritten
//	chain.go     nodes and chains: what is the tail of a key, and may a request go there
//	versions.go  operands and responses with another version
//	store.go     where a store's nodes are; data.go: WRITEs that make or overwrite them
//	hot.go       which keys are hot
package cloversteer
