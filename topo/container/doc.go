// Package container runs the hosts of a rack in containers. They run the same daemon as hosts that
// are processes, with the same description, control sockets and addresses, and are connected to the
// same switch.
//
// Containers are found by their labels, no matter what made them: `rdmalab up --runtime docker`
// by the engine's API, or compose from the file that Compose returns. From the machine they need
// only the rack's state folder and one interface. A container gets this interface in one of
// three ways:
//
//   - PlugOutside: the container has no network of its own. The engine reports every start to the
//     rack's watcher, which makes a link between the switch and the container's network namespace.
//   - PlugHolder: the same, but the namespace belongs to a second container, which only waits. So the
//     NIC's link outlives the host's process.
//   - PlugDriver: the watcher is a network driver of the engine, and the link of each host is a
//     network with one port. The engine attaches the link at every start by itself, and disconnecting
//     the network cuts the link.
//
// The package uses HTTP and JSON over the engine's unix socket, in the version that the engine
// offers. The engine must run on this machine, in its network and mount namespaces.
package container

import "errors"

// Errors that callers tell apart.
var (
	// ErrNoEngine means that no container engine answers.
	ErrNoEngine = errors.New("no container engine answers")
	// ErrNotFound means that the engine has no such container, network or image.
	ErrNotFound = errors.New("no such container, network or image")
)
