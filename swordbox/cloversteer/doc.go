// Package cloversteer steers requests of the store Clover to the newest node of their key. So a
// client that knows only an old node appends and reads without walking along the chain (SwordBox
// §7).
//
// How it works. A data WRITE shows to which key a node belongs. An append is a CAS on the header of
// a node that has no successor. The handle in its swap operand names the appended node, so threads
// may share a queue pair. When an append has succeeded, its node is the tail of its key. If a later
// append or READ names a node that is known to be older, the switch writes the address of the tail,
// and the tail's version, into its operands. PSNs, R_Keys and connections stay as they are.
//
// Why that is correct:
//
//   - A request is steered only to a node whose append the server has acknowledged, so no client
//     learns of a node that is not reachable. The appends to one key go to the server one after the
//     other. The others wait in the switch, at most for Config.Hold, and then go unchanged to the
//     node that their client named: that is Clover without steering, which is always correct. So
//     an append waits at most that long for an append of a dead client. READs of the key wait with
//     the appends and are sent before the next one: if they were sent at once, their node would
//     have a successor soon. A waiting request is sent at once when its connection has another
//     request.
//   - An append that has succeeded absorbs the appends that waited when it was sent: the node of
//     each of these gets the appended node as its successor (absorb.go).
//   - A request is steered only if the tail has the length and R_Key of the node that the client
//     named, is on the same server, and has a version that is not lower. If its version is higher,
//     the switch translates the response, so that it shows the version that the client knows. A
//     response of several packets cannot be translated, so such a READ is steered only to a tail of
//     the same version. Only the tail's own version is translated. If the tail's entry has been
//     reused meanwhile, the new node has a still higher version. So the new node never looks like
//     the node that the client named, even if the switch does not know the new node.
//   - If a translated response is lost in a crash of the switch, the client sees a version that it
//     does not know. After an append it must then find out whether its node was linked; after a
//     READ it asks the metadata server. Package clover does both.
//   - Nodes are ordered: if an append was sent when the tail was known to be linked, its node comes
//     after the tail. If the order of two nodes is not known, no request is steered from one to the
//     other, so readers do not go in circles.
//   - When the switch sees a request that it does not understand, it forgets the tail of the key.
//     When other rules hide requests for a server's memory from the machine, it forgets the store
//     there. Forgetting is always correct.
//
// A client may not know whether its append took effect. The header of the node that it named does
// not show that the append failed (package clover does not use it so). The client then looks for
// its own node in the chain, on another connection. Before that, it sends a WRITE of no bytes to
// its own node. The switch then forgets to which key this node belongs, and sends a waiting or
// later copy of the append only to the node that the client named.
//
// A count-min sketch, whose counts are halved regularly, and a bounded table find the hot keys
// (rule keys=hot:N). Requests for other keys are not steered, but the switch follows their chains.
//
// The switch learns where nodes are from the store's superblocks. The metadata server writes them,
// and each client reads them when it connects. All tables are bounded, and empty after a restart.
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
