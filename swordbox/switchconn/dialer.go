package switchconn

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

type Config struct {
	// MAC, IPv4 and IPv6 are the addresses of the switch. If an IP address is not valid, the switch
	// has none of this family.
	MAC        wire.MAC
	IPv4, IPv6 netip.Addr
	// Resolve returns the MAC address of a server. Required.
	Resolve func(netip.Addr) (wire.MAC, bool)
	// LinkMTU is the length of the largest IP packet of the links in bytes; 0 means 4200.
	LinkMTU int
	// Rand is the source of QPNs, PSNs and communication IDs. Required. The Dialer owns it.
	Rand *rand.Rand
	// Journal keeps the connections over a crash of the switch. The Dialer ends the connections of
	// the former incarnation. nil means that nothing is kept.
	Journal *journal.Journal
}

// MaxShared bounds the number of connections that the switch makes.
const MaxShared = journal.MaxConns / 2

// Dialer makes and keeps the switch's connections. Make one with New.
type Dialer struct {
	cfg    Config
	m      *cm.Machine
	acts   cm.Actions
	psn    wire.PSN // PSN of the next datagram
	links  []*link  // in the order of the first calls of Want or Adopt
	byKey  map[Key]*link
	byConn map[uint64]*link // key is link.owner
	byQPN  map[wire.QPN]*link
	owners uint64    // the newest link.owner
	gen    uint32    // the newest Shared.Generation
	former []*former // ended connections whose end the server has not confirmed
	events []Event
	frame  wire.Frame
	stats  Stats
}

// Stats counts what a Dialer did.
type Stats struct {
	Dialed      uint64 `help:"attempts to connect to a server"`
	Established uint64 `help:"attempts that made a connection"`
	Failed      uint64 `help:"attempts that failed"`
	Lost        uint64 `help:"connections that failed or were ended by the server"`
	Refused     uint64 `help:"connections refused because there were too many"`
	Ended       uint64 `help:"connections whose end the server has confirmed, also of a former incarnation of the switch"`
	Abandoned   uint64 `help:"connections that ended without a confirmation of the server"`
	Retries     uint64 `help:"datagrams retransmitted"`
}

// New returns a Dialer, which is to make no connection yet. The Dialer ends the connections that
// the journal has from the former incarnation of the switch.
func New(cfg Config) (*Dialer, error) {
	if cfg.Resolve == nil || cfg.Rand == nil {
		return nil, errors.New("switchconn: Resolve and Rand are required")
	}
	if !cfg.IPv4.IsValid() && !cfg.IPv6.IsValid() || cfg.MAC == (wire.MAC{}) {
		return nil, errors.New("switchconn: the switch needs a MAC and an IP address")
	}
	cfg.LinkMTU = cmp.Or(cfg.LinkMTU, defaultLinkMTU)
	m, err := cm.New(cm.Config{
		Rand: rand.New(rand.NewPCG(cfg.Rand.Uint64(), cfg.Rand.Uint64())), GUID: verbs.EUI64(cfg.MAC),
		ResponseTimeout: responseTimeout, MaxRetries: responseRetries,
	})
	if err != nil {
		return nil, fmt.Errorf("switchconn: %w", err)
	}
	d := &Dialer{
		cfg: cfg, m: m, psn: wire.PSN(cfg.Rand.Uint32()).Add(0),
		byKey: make(map[Key]*link), byConn: make(map[uint64]*link), byQPN: make(map[wire.QPN]*link),
	}
	for _, c := range cfg.Journal.Former().Conns {
		d.former = append(d.former, &former{conn: c})
	}
	return d, nil
}

const (
	defaultLinkMTU = 4200
	// responseTimeout encodes how long a server may take to answer a datagram: 33 ms, which is far
	// longer than a server in a rack takes.
	responseTimeout = 13
	responseRetries = 7
)

// Want asks for a connection. The attempts to make it begin with the next Tick. A second call for
// the same key sets the target of the next attempt. If there are already MaxShared connections, the
// call is counted (Stats.Refused) and has no other effect, and Want returns false.
func (d *Dialer) Want(k Key, t Target) bool {
	l := d.byKey[k]
	switch {
	case l != nil:
		l.want, l.target = true, t
		return true
	case !d.Room():
		d.stats.Refused++
		return false
	}
	l = &link{Key: k, target: t, want: true}
	d.links, d.byKey[k] = append(d.links, l), l
	return true
}

// Room reports whether there can be another connection: there are fewer than MaxShared. A
// connection that is not wanted any more takes one of these places until it has ended.
func (d *Dialer) Room() bool { return len(d.links) < MaxShared }

// Unwant ends the connection with key k, if there is one. If that connection is up, EventDown
// follows.
func (d *Dialer) Unwant(c *pipeline.Ctx, k Key) {
	l := d.byKey[k]
	if l == nil {
		return
	}
	l.want = false
	d.end(c, l, "it is not wanted any more")
	d.sweep(l)
}

// Adopt adds a connection that another program has set up. It uses these fields of s: the key, both
// QPNs, both PSNs, MTU, Depth and, if it is set, the Ethernet destination of To. EventUp follows.
// If there is an adopted connection with the same key that is not up, Adopt replaces it.
func (d *Dialer) Adopt(s Shared) error {
	l := d.byKey[s.Key]
	switch {
	case l != nil && l.state == Up:
		return fmt.Errorf("there is a connection to %v, shard %d; remove it first", s.Server, s.Shard)
	case l != nil && !l.adopted:
		return fmt.Errorf("the switch itself makes the connection to %v, shard %d; a rule with service none allows adopting one", s.Server, s.Shard)
	case d.byQPN[s.OwnQPN] != nil:
		return fmt.Errorf("queue pair %#x of the switch is in use", uint32(s.OwnQPN))
	case l == nil && !d.Room():
		d.stats.Refused++
		return fmt.Errorf("there are %d connections already, the maximum", MaxShared)
	}
	if err := s.check(); err != nil {
		return err
	}
	s.Adopted = true
	if err := d.path(&s); err != nil {
		return err
	}
	if l == nil {
		l = &link{Key: s.Key}
		d.links, d.byKey[l.Key] = append(d.links, l), l
	}
	l.want, l.adopted = true, true
	d.up(l, s)
	return nil
}

// Again tells the Dialer that the connection with key k has failed. The Dialer ends the connection
// and makes it again. If it was adopted, the Dialer only forgets it, even if Want was called for k.
// Again has no effect if the connection has another generation, because then a newer connection is
// in use.
func (d *Dialer) Again(c *pipeline.Ctx, k Key, generation uint32) {
	if l := d.byKey[k]; l != nil && l.state == Up && l.shared.Generation == generation {
		d.stats.Lost++
		d.end(c, l, "it has failed")
		d.sweep(l)
	}
}

// Renew makes a connection again if Want has asked for another target since it was made. It is
// called for a connection that its user cannot use. An adopted connection stays.
func (d *Dialer) Renew(c *pipeline.Ctx, k Key) {
	if l := d.byKey[k]; l != nil && l.want && l.state == Up && !l.adopted && l.made != l.target {
		d.end(c, l, "the rule asks for another one")
	}
}

// Redirect ends a connection, or the attempt to make one, if Want has asked for another service
// since the attempt began. The next attempt goes to that service. Redirect reports whether it has
// ended one. An adopted connection stays.
func (d *Dialer) Redirect(c *pipeline.Ctx, k Key) bool {
	l := d.byKey[k]
	if l == nil || !l.want || l.adopted || l.state != Up && l.state != Dialing || l.made.Service == l.target.Service {
		return false
	}
	d.end(c, l, "the rule asks for another service")
	return true
}

// Clear reports whether the server can no longer execute any request that the switch sent on an
// earlier connection. Earlier connections are those that the switch has ended, for example because
// they have failed, and those of an earlier incarnation of the switch. Such a connection no longer
// counts when the server has confirmed its end, or when so much time has passed that no packet of
// it can be in flight.
func (d *Dialer) Clear(server netip.Addr) bool {
	return !slices.ContainsFunc(d.former, func(f *former) bool { return f.conn.Server == server })
}

// AllClear reports whether Clear returns true for every server.
func (d *Dialer) AllClear() bool { return len(d.former) == 0 }

// Missing says why there is no connection with key k: why the last attempt to make it has failed. "" means
// that there is one, or that no attempt has ended yet.
func (d *Dialer) Missing(k Key) string {
	switch l := d.byKey[k]; {
	case l == nil && !d.Room():
		return fmt.Sprintf("the switch has %d connections, the maximum", MaxShared)
	case l == nil || l.state == Up || l.attempts == 0:
		return ""
	default:
		return l.err
	}
}

func (d *Dialer) HasNext() bool { return len(d.events) != 0 }

// Next takes the next event. The bool is false if there is none.
func (d *Dialer) Next() (Event, bool) {
	if len(d.events) == 0 {
		return Event{}, false
	}
	e := d.events[0]
	d.events = slices.Delete(d.events, 0, 1)
	return e, true
}

// Close ends all connections that the Dialer has made. It sends one DREQ for each.
func (d *Dialer) Close(c *pipeline.Ctx) {
	for _, l := range slices.Clone(d.links) {
		d.Unwant(c, l.Key)
	}
}

func (d *Dialer) Stats() Stats {
	s := d.stats
	s.Retries += d.m.Stats().Retries
	return s
}

// List returns the connections, sorted by server and shard.
func (d *Dialer) List() []Info {
	var out []Info
	for _, l := range d.links {
		i := Info{Key: l.Key, State: l.state, Attempts: l.attempts, Error: l.err}
		switch l.state {
		case Up:
			s := l.shared
			i.Shared = &s
		case Waiting:
			i.Next = l.next
		case Dialing, Ending:
		}
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b Info) int { return a.Key.compare(b.Key) })
	return out
}

// Tick retransmits datagrams and begins attempts whose time has come. The caller calls it at
// Deadline.
func (d *Dialer) Tick(c *pipeline.Ctx) {
	if d.m.Deadline() <= c.Now {
		d.m.Tick(c.Now, &d.acts)
		d.carryOut(c)
	}
	d.endFormer(c)
	for i := 0; i < len(d.links); i++ { // not by range: an attempt that fails at once may change links
		if l := d.links[i]; l.want && !l.adopted && l.state == Waiting && l.next <= c.Now {
			d.dial(c, l)
		}
	}
}

func (d *Dialer) Deadline() clock.Time {
	at := d.m.Deadline()
	for _, f := range d.former {
		at = clock.Min(at, f.next)
	}
	for _, l := range d.links {
		if l.want && !l.adopted && l.state == Waiting {
			at = clock.Min(at, l.next)
		}
	}
	return at
}
