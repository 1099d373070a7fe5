package cm

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// outbox puts messages into Actions, for the caller to send, and counts them.
type outbox struct {
	stats   Stats
	tidBase uint64 // upper half of all transaction IDs of this machine; random
	tids    uint32 // number of transaction IDs given out
}

// exchange is the current exchange of messages of a connection.
type exchange struct {
	tid uint64 // transaction ID; DREQ and DREP have another one than the messages before
	// last is the message that was sent last. It is sent again if no answer comes, or if the peer
	// repeats its own message.
	last     [mad.Size]byte
	lastAttr mad.Attr
	timeout  uint8 // time code: how long the peer may take to answer
	retries  uint8 // retries that are left
	maxTries uint8 // retries of each message
}

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

// send sends a message without keeping it for retransmission.
func (o *outbox) send(on Way, tid uint64, msg mad.Message, out *Actions) {
	o.stats.Sent++
	out.Tx = append(out.Tx, Datagram{Local: on.Local, Remote: on.Peer, PKey: on.PKey})
	mad.Append(out.Tx[len(out.Tx)-1].MAD[:0], tid, msg)
}

// repeat is called when the peer has repeated a message, so this side's last message may be lost.
// If the last message is of one of the kinds in answers, repeat sends it again.
func (o *outbox) repeat(c *conn, out *Actions, answers ...mad.Attr) {
	if slices.Contains(answers, c.lastAttr) {
		o.stats.Duplicates++
		o.sendLast(c, out)
		return
	}
	o.stats.Strays++
}
