package framering

import (
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

type Config struct {
	// Layout is where the entries are: each entry takes one cell of this area.
	Layout extmem.Area
	// Carriers has the Carrier to each server of Layout, in the order of Layout.Servers.
	Carriers []Carrier
	// Trusting is true if the ring accepts every entry that a READ returns, without checking that
	// its header names the entry asked for. The ring of package published/packetbuffer is trusting.
	Trusting bool
	// Epoch numbers the rings that one user makes. Carrier.Read gets it with each READ
	// (Entry.Ring), and Came ignores an answer with another number: it belongs to a READ of an
	// earlier ring. The tag in the headers of the ring's entries depends on the number, too.
	Epoch uint32
	// Exact is true if a READ asks for exactly the bytes that were written to one entry; the ring
	// then remembers the number of these bytes. Otherwise a READ asks for one or several whole
	// entries.
	Exact bool
	// Window bounds the number of entries for which the ring has sent READs and which Ring.Next has
	// not returned or skipped yet. It is at least 1.
	Window int
}

// Carrier sends the requests of a ring to one server. Offsets are relative to the region that the
// server has granted.
type Carrier interface {
	// Up reports whether there is a connection. Writes returns how many WRITEs the carrier could
	// send now without waiting. Reads reports whether it could send a READ now.
	Up() bool
	Writes() int
	Reads() bool
	// Longest is how many bytes a request can have at most. It bounds how many consecutive entries
	// share a request.
	Longest() int
	// Write sends a WRITE of b, of which the ring keeps no copy. Read sends a READ of n bytes,
	// which begin with entry e. The user of the ring hands the answer to Ring.Came.
	Write(c *pipeline.Ctx, offset uint64, b []byte)
	Read(c *pipeline.Ctx, offset uint64, n int, e Entry)
	// Nonce is a number that very probably differs between connections. The carrier of package
	// published/packetbuffer returns 0, because its ring (see Config.Trusting) does not compare
	// tags.
	Nonce() uint32
}
