package cm

import "github.com/rdmalab/rdmalab/softrnic/wire/mad"

// outbox sends messages and counts them.
type outbox struct {
	stats   Stats
	tidBase uint64
	tids    uint32
}

// exchange is the exchange of messages that a connection is in.
type exchange struct {
	tid uint64 // DREQ and its answer have another one than the rest
	// last is the message that is sent again when no answer comes, or when the peer repeats its
	// own.
	last     [mad.Size]byte
	lastAttr mad.Attr
	timeout  uint8 // code: how long the peer may take
	retries  uint8 // left
	maxTries uint8
}

// newTID makes a number for a new exchange of messages.
func (o *outbox) newTID() uint64 {
	o.tids++
	return o.tidBase | uint64(o.tids)
}

// put sends a message and keeps it for retransmission.
func (o *outbox) put(c *conn, tid uint64, msg mad.Message, out *Actions) {
	c.lastAttr = msg.Attr()
	mad.Append(c.last[:0], tid, msg)
	o.sendLast(c, out)
}

func (o *outbox) sendLast(c *conn, out *Actions) {
	o.stats.Sent++
	out.Tx = append(out.Tx, Datagram{Local: c.local, Remote: c.peer, PKey: c.pkey, MAD: c.last})
}

// send sends a message that is not kept.
func (o *outbox) send(on Way, tid uint64, msg mad.Message, out *Actions) {
	o.stats.Sent++
	out.Tx = append(out.Tx, Datagram{Local: on.Local, Remote: on.Peer, PKey: on.PKey})
	mad.Append(out.Tx[len(out.Tx)-1].MAD[:0], tid, msg)
}

// repeat sends the last message again if it is one of those that answer the repeated message of the
// peer.
func (o *outbox) repeat(c *conn, out *Actions, answers ...mad.Attr) {
	for _, a := range answers {
		if c.lastAttr == a {
			o.stats.Duplicates++
			o.sendLast(c, out)
			return
		}
	}
	o.stats.Strays++
}
