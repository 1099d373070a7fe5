// Package share lets threads of one application share queue pairs: all of them reach a service of a host through one connection, as
// the threads of the published Clover do. Each thread is a Member, which is used as if it had a NIC of its own: it is a verbs.Context
// and an rdmacm.Dialer, whose protection domain makes queue pairs that are shared when they are connected with one of the services
// of Config.Shared, and the thread's own otherwise.
//
// All queue pairs, shared or not, have one completion queue, and each completion goes to the member whose work request it ends. One of
// those who wait polls for all (it is the leader); it opens the gate of whoever got something, and when it has what it waited for
// another one leads.
//
// A connection that fails fails for all: whoever has work requests there gets them flushed, and the next Dial of each makes one new
// connection for all of them. A member that ends its queue pair with work under way ends it for all as well: there is no other way to
// take work back from a NIC. Members that have nothing under way leave without harm to others.
//
// No memory is shared: each member registers its own. But all is in one protection domain.
package share
