package switchconn

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// former is a connection that the switch no longer uses, and whose end the server has not
// confirmed.
type former struct {
	conn journal.Conn
	// link is the link whose next attempt waits until the server has confirmed the end of conn; nil
	// means that a former incarnation of the switch made the connection.
	link  *link
	next  clock.Time // when the next DREQ is due
	until clock.Time // when the switch stops waiting for the DREP; 0 means not set yet
	tries int        // how many DREQs sendDREQ has sent
}

const (
	// dreqTimeout is how long the switch waits for the DREP before it retransmits the first DREQ.
	dreqTimeout = 30 * time.Millisecond
	// maxTransit is longer than any packet is in flight. The switch sends no packets on a former
	// connection. So after this time no packet of the connection can arrive, even if the server has
	// not answered.
	maxTransit = 2 * time.Minute
)

// endFormer sends the DREQs that are due for former connections. It forgets a former connection of
// which no packet can be in flight any more, although the server has not answered.
func (d *Dialer) endFormer(c *pipeline.Ctx) {
	for i := 0; i < len(d.former); i++ {
		f := d.former[i]
		if f.next > c.Now {
			continue
		}
		if f.until == 0 {
			f.until = c.Now.Add(maxTransit)
		}
		if c.Now >= f.until {
			d.stats.Abandoned++
			d.forgetFormer(i)
			i--
			continue
		}
		d.sendDREQ(c, f)
	}
}

// forgetFormer forgets former connection i. It is called when the server can execute no more
// requests of the connection.
func (d *Dialer) forgetFormer(i int) {
	f := d.former[i]
	d.former = slices.Delete(d.former, i, i+1)
	d.cfg.Journal.EndConn(f.conn.Slot)
	if f.link != nil {
		f.link.state.on(chOver)
		d.sweep(f.link)
	}
}

// sendDREQ sends a DREQ for a former connection, which the connection manager of the switch does
// not know any more.
func (d *Dialer) sendDREQ(c *pipeline.Ctx, f *former) {
	pause := maxBackOff
	if f.tries < 5 {
		pause = min(pause, dreqTimeout<<f.tries)
	}
	if f.tries++; f.tries > 1 {
		d.stats.Retries++
	}
	f.next = c.Now.Add(pause)
	t := cm.Datagram{Local: d.own(f.conn.Server), Remote: f.conn.Server}
	if !t.Local.IsValid() {
		return
	}
	mad.Append(t.MAD[:0], uint64(f.conn.OwnID)<<32|uint64(f.conn.ServerID), &mad.DREQ{
		LocalID: mad.CommID(f.conn.OwnID), RemoteID: mad.CommID(f.conn.ServerID), QPN: f.conn.ServerQPN,
	})
	d.transmit(c, &t)
}

// confirmed handles a DREP that answers a DREQ of sendDREQ. The server's queue pair is then in the
// error state and executes nothing more.
func (d *Dialer) confirmed(peer netip.Addr, b []byte) {
	if len(d.former) == 0 {
		return
	}
	var h mad.Header
	if h.Parse(b) != nil || h.Attr != mad.AttrDREP {
		return
	}
	msg, err := mad.Parse(b, &h)
	drep, ok := msg.(*mad.DREP)
	if err != nil || !ok {
		return
	}
	i := slices.IndexFunc(d.former, func(f *former) bool {
		return f.conn.Server == peer && mad.CommID(f.conn.OwnID) == drep.RemoteID && mad.CommID(f.conn.ServerID) == drep.LocalID
	})
	if i < 0 {
		return
	}
	d.stats.Ended++
	d.forgetFormer(i)
}
