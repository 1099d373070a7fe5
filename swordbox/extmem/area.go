package extmem

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Area says where numbered cells of equal size lie in the memory of servers: cell i is in server i
// modulo the number of servers.
type Area struct {
	// Servers are the addresses of the servers whose memory has the cells.
	Servers []netip.Addr
	// Offset is the offset of the first cell in each server's memory, in bytes.
	Offset uint64
	// Cells is the number of cells on all servers together. Size is the size of one, in bytes.
	Cells, Size int
}

// Place returns where cell i is: the index of its server, and its offset in the server's memory in
// bytes. Cell numbers are taken modulo Cells.
func (a *Area) Place(i uint64) (server int, offset uint64) {
	i %= uint64(a.Cells)
	n := uint64(len(a.Servers))
	return int(i % n), a.Offset + i/n*uint64(a.Size)
}

// End returns the offset behind the last cell of the server with the most cells, in bytes.
func (a *Area) End() uint64 {
	n := max(1, len(a.Servers))
	return a.Offset + uint64((a.Cells+n-1)/n)*uint64(a.Size)
}

// Shares reports whether both areas have cells in the same server.
func (a *Area) Shares(b *Area) bool {
	return slices.ContainsFunc(a.Servers, func(x netip.Addr) bool { return slices.Contains(b.Servers, x) })
}

// Overlaps reports whether both areas have a server in common, on which their ranges from Offset to
// End overlap.
func (a *Area) Overlaps(b *Area) bool {
	return a.Shares(b) && a.Offset < b.End() && b.Offset < a.End()
}

// Same reports whether both areas have the same cells in the same places.
func (a *Area) Same(b *Area) bool {
	return slices.Equal(a.Servers, b.Servers) && a.Offset == b.Offset && a.Cells == b.Cells && a.Size == b.Size
}

// Memory describes the area as the memory of a rule. service is the name of the service that lends
// the memory, and key the rule's key that sets Offset.
func (a *Area) Memory(service, key string) rules.Memory {
	return rules.Memory{Servers: a.Servers, Service: service, From: a.Offset, To: a.End(), Key: key}
}

// Grant returns the memory that a server lends to the switch on a connection. The error says why
// the cells of the area cannot be in this memory.
func (a *Area) Grant(s *switchconn.Shared) (memgrant.Grant, error) {
	g, err := memgrant.Of(s.Answer)
	if err == nil && a.End() > uint64(g.Region.Len) {
		err = fmt.Errorf("the rule needs the server's memory up to offset %#x, and the server has %#x bytes", a.End(), g.Region.Len)
	}
	return g, err
}
