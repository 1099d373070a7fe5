package extmem

import (
	"cmp"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

const (
	// InFlight is how many requests may be in flight to a server. The switch keeps the headers of
	// each request, so that it can retransmit the request.
	InFlight = 512
	// usualSilence is how long a server may leave a request unanswered, if the program sets no
	// bound.
	usualSilence = 255 * time.Millisecond
)

// Conn sends READs and WRITEs to the memory that a server lends, by a requester. It uses one
// connection at a time; when that has ended, Attach gives it another one. Make one with NewConn.
type Conn struct {
	*requester.Conn
	grant memgrant.Grant
	nonce uint32
	tx    wire.Frame // scratch
}

// NewConn makes a Conn without a connection. number names it in captures, and user handles the ends
// of its requests. silence is how long the Conn retransmits to a server that does not
// answer; 0 means 255 ms.
func NewConn(number uint32, silence time.Duration, user requester.User) Conn {
	cfg := requester.Config{Number: number, Ring: InFlight, Waiting: 1, Silence: cmp.Or(silence, usualSilence)}
	return Conn{Conn: requester.New(cfg, user)}
}

// Attach uses a new connection to a server that lends the memory g.
func (k *Conn) Attach(s *switchconn.Shared, g memgrant.Grant) {
	k.grant, k.nonce = g, uint32(s.OwnQPN)<<8^uint32(s.RecvPSN)<<1
	k.Conn.Attach(requester.LinkOf(s))
}

// Nonce returns a number that very probably differs between connections, also those of former
// incarnations of the switch, because the numbers of queue pairs and the first PSNs are random.
func (k *Conn) Nonce() uint32 { return k.nonce }

func (k *Conn) Up() bool { return k.State() == requester.Up }

// Reads reports whether a READ would be sent at once.
func (k *Conn) Reads() bool { return k.SendsNow(wire.RCReadRequest, 0) }

// Longest returns how many bytes a request can have at most: a request has one packet.
func (k *Conn) Longest() int { return k.Link().MTU }

// Request returns a request for n bytes of the server's memory, beginning at offset. It is valid
// until the next call.
func (k *Conn) Request(op wire.Opcode, offset uint64, n int) *wire.Frame {
	k.tx = wire.Frame{V6: k.Link().To.V6}
	k.tx.BTH.Opcode = op
	k.tx.RETH = wire.RETH{VA: k.grant.Region.Addr + offset, RKey: k.grant.Region.RKey, Length: uint32(n)}
	return &k.tx
}

// Write sends a WRITE of b. It keeps no copy of b: a retransmission is a WRITE of no bytes.
func (k *Conn) Write(c *pipeline.Ctx, offset uint64, b []byte) {
	f := k.Request(wire.RCWriteOnly, offset, len(b))
	f.Payload = b
	k.SubmitOnce(c, f, requester.Tag{})
}

// Packet handles a packet of the server; false means that another host has sent it.
func (k *Conn) Packet(c *pipeline.Ctx, p *pipeline.Parsed) bool {
	if k.Link().Peer() != p.SrcAddr() {
		return false
	}
	k.Conn.Packet(c, &p.Frame)
	return true
}

// Retry returns false: a refused request is not sent in another form.
func (k *Conn) Retry(requester.Tag) bool { return false }
