// Package steer leads requests of the store Clover to the newest node of their key: a client that knows an old node appends
// and reads without a walk along the chain (SwordBox §7).
//
// What it does. A data WRITE tells which key a node belongs to. An append is a compare-and-swap on the header of a node that has
// no successor; the handle in its swap word names the node that is appended, also where several threads share a queue pair.
// When an append has succeeded, its node is the tail of its key. Later appends and READs that go to a node known to be
// older get the address of the tail, and the version of it in their operands. PSNs, keys and connections stay as they are.
//
// Why that is right.
//
//   - A request is steered only to a node whose append the server has acknowledged, so nobody is told of an append that cannot
//     be reached. Appends to one key go to the server one after the other; the others wait in the switch, at most for
//     Config.Hold, and then go to the node that their client named: plain Clover, which is always right. No append
//     waits for one of a dead client for longer. READs of the key wait with them, and go before the next append: sent at once, they would
//     meet a node that has a successor by then. What waits lets go when its connection has another request.
//   - A request is steered only if the tail has the length and the region key of the node that the client named, is on the same
//     server, and has a version that is not lower. If the version is higher, the answer is translated back: it shows the version that the
//     client knows. Only what shows the tail's own version is translated. So an entry that has been used again, whose version is higher
//     still, never looks like what the client named, whether or not the switch remembers.
//   - If a translated answer is lost in the switch's crash, the client sees a version that it does not know: of an append, it must then find out
//     whether its node was linked; of a READ, it asks the metadata server. Package clover does both.
//   - Nodes have an order: an append that was sent when the tail was known to be linked comes behind it. Where the order of two
//     nodes is not known, nothing is steered from one to the other, so no reader goes in circles.
//   - What is not understood makes the switch forget the tail of the key. To forget is always right.
//
// A client must not conclude from the header of the node that it named that a lost append did not happen (package clover does not).
// Before it looks for its node in the chain, on another connection, it touches the node, by a WRITE without bytes: the switch
// forgets whose it is, and sends no copy of the append that waits or is still to come to another node than the one that it names.
//
// Hot keys are found by a count-min sketch whose counts are halved now and then, and a bounded table (rule keys=hot:N); of other
// keys nothing is steered, but chains are followed.
//
// Where nodes are, the switch learns from the store's superblocks, which the metadata server writes and which each client reads
// when it connects. All tables are bounded, and empty after a restart.
package steer
