// Package plugin runs the service kvcs on a rack whose hosts have 1RMA NICs: the coordinator on the
// metadata host, a replica on each memory host, and clients on any host. Datagrams between them are
// UDP of the hosts' kernels; READs and REKEYs are operations of the NICs.
//
// A replica lends memory of its process, not the region that the memory host lends to other stores.
package plugin
