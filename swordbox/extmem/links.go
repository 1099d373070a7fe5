package extmem

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Link holds the present connection of a Channel to a memory server. When that connection ends, a
// new one with the same key takes its place. Every Channel embeds a Link.
type Link struct {
	key switchconn.Key
	// shared is the present connection; it is valid if connected is true.
	shared    switchconn.Shared
	connected bool
	missing   func(switchconn.Key) string // that of the Links
	unfit     bool                        // the connection does not fit the present rules, so the handler does not use it
	why       string                      // why the handler cannot use the last connection; "" means that it can, or that there was none
}

func (l *Link) base() *Link { return l }

// Requested returns no counters: the channel of a published handler has no requester.
func (l *Link) Requested() (s requester.Stats) { return s }

// Fit returns an error if the memory service's answer to the connection request names no valid
// region. A Channel that needs more of the region has a Fit of its own.
func (l *Link) Fit(s *switchconn.Shared) error {
	_, err := memgrant.Of(s.Answer)
	return err
}

func (l *Link) Key() switchconn.Key { return l.key }

// Connected reports whether there is a connection. The handler may be unable to use it (Usable).
func (l *Link) Connected() bool { return l.connected }

// Usable reports whether there is a connection that fits the present rules.
func (l *Link) Usable() bool { return l.connected && !l.unfit }

// Why says why there is no connection, or why the last one cannot be used or has failed; "" means that
// there is no reason.
func (l *Link) Why() string {
	if !l.connected && l.missing != nil {
		if why := l.missing(l.key); why != "" {
			return why
		}
	}
	return l.why
}

// Generation returns the number (switchconn.Shared.Generation) of the last connection; 0 means that
// there was none.
func (l *Link) Generation() uint32 { return l.shared.Generation }

// Server describes the link for a listing. up says whether requests can be sent.
func (l *Link) Server(up bool) Server { return Server{l.key.Server, up && l.Usable(), l.Why()} }

// Shard returns the shard number of a handler's connection: number, plus switchconn.PublishedShard
// if the handler is a published one.
func Shard(number int, mode rules.Mode) int {
	if mode == rules.Published {
		number += switchconn.PublishedShard
	}
	return number
}

// Channel is what a handler keeps for one connection to a memory server and for those that replace
// it later. It embeds the Link of these connections.
type Channel interface {
	base() *Link
	// Needed reports whether the channel is needed: by a rule, or by frames that a removed rule has
	// left.
	Needed() bool
	// Fit returns nil if the handler can use the connection under the present rules. Otherwise the
	// error says why it cannot.
	Fit(s *switchconn.Shared) error
	// Begin uses a new connection that fits. End is called when that connection has ended.
	Begin(s *switchconn.Shared)
	End(c *pipeline.Ctx)
	// Requested returns the counters of the channel's requester.
	Requested() requester.Stats
}

// Links holds a handler's channels: one for each connection to a memory server that rules need, in
// the order in which rules first needed them. Make one with NewLinks.
type Links[C Channel] struct {
	All     []C
	Replace Replace // nil means that failed connections are not replaced
	// Missing says why the switch has not made a connection; nil means that the reasons are not known.
	Missing func(switchconn.Key) string
	byQPN   map[wire.QPN]C
	gone    requester.Stats // counters of the requesters of removed channels
}

// Replace makes the program replace a connection that has failed.
type Replace func(c *pipeline.Ctx, k switchconn.Key, generation uint32, why string)

func NewLinks[C Channel](replace Replace) Links[C] {
	return Links[C]{Replace: replace, byQPN: make(map[wire.QPN]C)}
}

// Find returns the channel with a key; false means that there is none.
func (t *Links[C]) Find(k switchconn.Key) (ch C, ok bool) {
	i := slices.IndexFunc(t.All, func(ch C) bool { return ch.base().key == k })
	if i < 0 {
		return ch, false
	}
	return t.All[i], true
}

// Add adds a channel for the connections with a key. There must be none yet.
func (t *Links[C]) Add(k switchconn.Key, ch C) {
	ch.base().key, ch.base().missing = k, t.Missing
	t.All = append(t.All, ch)
}

// Of returns the channel of a queue pair of the switch; false means that it belongs to none.
func (t *Links[C]) Of(qpn wire.QPN) (ch C, ok bool) {
	ch, ok = t.byQPN[qpn]
	return ch, ok
}

// Mine reports whether a queue pair of the switch belongs to a channel.
func (t *Links[C]) Mine(qpn wire.QPN) bool {
	_, ok := t.byQPN[qpn]
	return ok
}

// Uses reports whether a channel is for connections with key k.
func (t *Links[C]) Uses(k switchconn.Key) bool {
	_, ok := t.Find(k)
	return ok
}

// Attach takes a connection that the switch offers: a new one, or the present one again after a
// change of rules. ok is false if the handler cannot use it under the present rules.
func (t *Links[C]) Attach(c *pipeline.Ctx, s *switchconn.Shared) (ch C, ok bool) {
	ch, ok = t.Find(s.Key)
	if !ok || !ch.Needed() {
		return ch, false
	}
	l := ch.base()
	if l.connected && l.shared.Generation == s.Generation {
		return ch, l.judge(ch.Fit(s))
	}
	if l.connected {
		t.Detach(c, l.key, l.shared.Generation)
	}
	if !l.judge(ch.Fit(s)) {
		return ch, false
	}
	l.shared, l.connected = *s, true
	t.byQPN[s.OwnQPN] = ch
	ch.Begin(s)
	return ch, true
}

// judge records whether a connection fits, and reports it. err is the result of Channel.Fit.
func (l *Link) judge(err error) bool {
	l.unfit, l.why = err != nil, ""
	if l.unfit {
		l.why = err.Error()
	}
	return !l.unfit
}

// Recheck is called when the rules have changed. Then a connection is usable if and only if it fits
// the present rules.
func (t *Links[C]) Recheck() {
	for _, ch := range t.All {
		if l := ch.base(); l.connected && ch.Needed() {
			l.judge(ch.Fit(&l.shared))
		}
	}
}

// Detach is called when the connection with key k has ended. ok is false if no channel uses this
// connection with this generation now; then nothing changes.
func (t *Links[C]) Detach(c *pipeline.Ctx, k switchconn.Key, generation uint32) (ch C, ok bool) {
	if ch, ok = t.Find(k); !ok || ch.base().shared.Generation != generation {
		return ch, false
	}
	t.forget(ch.base())
	ch.End(c)
	return ch, true
}

// Fail is called when a connection has failed. The program replaces it.
func (t *Links[C]) Fail(c *pipeline.Ctx, ch C, why string) {
	l := ch.base()
	t.forget(l)
	l.why = why
	if t.Replace != nil {
		t.Replace(c, l.key, l.shared.Generation, why)
	}
}

// forget removes the connection of link l. l.shared keeps the connection's generation, by which
// Replace and Detach name the connection later.
func (t *Links[C]) forget(l *Link) {
	delete(t.byQPN, l.shared.OwnQPN)
	l.connected = false
}

// Sweep removes the channels that nothing needs and that have no connection, and calls gone for
// each.
func (t *Links[C]) Sweep(gone func(ch C)) {
	t.All = slices.DeleteFunc(t.All, func(ch C) bool {
		if ch.Needed() || ch.base().connected {
			return false
		}
		metrics.Add(&t.gone, ch.Requested())
		if gone != nil {
			gone(ch)
		}
		return true
	})
}

// Requested returns the counters of the requesters of all channels, also of removed channels.
func (t *Links[C]) Requested() requester.Stats {
	sum := t.gone
	for _, ch := range t.All {
		metrics.Add(&sum, ch.Requested())
	}
	return sum
}

// Server is a connection to a server as an operator sees it.
type Server struct {
	Address netip.Addr `json:"address"`
	// Up is true if the switch can use the server's memory. Why says why it cannot; "" means that
	// there is no reason, for example because no connection was made yet.
	Up  bool   `json:"up"`
	Why string `json:"why,omitempty"`
}

// Names returns the names of servers for a cell of a table, with - before a server whose memory the
// switch cannot use, and the reason. host returns the name of the host that has an address.
func Names(list []Server, host func(netip.Addr) string) string {
	out := make([]string, len(list))
	for i, s := range list {
		if out[i] = host(s.Address); !s.Up {
			out[i] = "-" + out[i]
		}
		if s.Why != "" {
			out[i] += " (" + s.Why + ")"
		}
	}
	return strings.Join(out, ", ")
}
