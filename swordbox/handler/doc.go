// Package handler is the seam between the switch program, which knows rules and connections, and
// the handlers, which carry rules out. A Kind is an entry of the registry (swordbox/apps): it says
// which rules the handler carries out, how a handler is made, and which listings it has for an
// operator. A Handler is an instance of a Kind. It is a Machine, which decides about packets, or an
// Observer, which sees requests and decides nothing, or both. The package holds these interfaces,
// the types of reports, and methods for a Machine that gets no flows (NoRequests).
//
// A new handler is one package and one line of the registry. The package registers its action and
// the keys of its rules (rules.Register), holds its state, and provides the listings that `rdmalab
// switch` shows. The program, the daemon and the command line find all of this through the Kind.
package handler
