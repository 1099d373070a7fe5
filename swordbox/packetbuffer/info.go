package packetbuffer

import (
	"cmp"
	_ "embed" // of help.md
	"fmt"
	"io"
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

var Kind = handler.Kind{
	Name: "buffer", Actions: []rules.Action{Buffer}, Mode: rules.Hardened,
	Listings: []handler.Listing{handler.NewListing(help, (*Machine).list, Print)},
}

func init() {
	Kind.New = func(e *handler.Env) handler.Handler {
		return New(Config{Kind: &Kind, Port: e.Port, Carrier: carrierOf(e.Silence), Failed: e.Failed, Missing: e.Missing})
	}
}

//go:embed help.md
var helpText string

var help = handler.Help{
	Name:  "buffers",
	Short: "Show the queues of ports, and the frames in servers' memory",
	Text:  helpText,
	Most:  "show at most this many queues; 0 means all",
}

// Item is a queue as an operator sees it.
type Item struct {
	Rule string `json:"rule"`
	Port int    `json:"port"`
	Mode string `json:"mode"`
	// Rate is in bits per second; 0 means that no rule limits the port now (queue.unlimited).
	Rate int64 `json:"rate"`
	// Waiting and Remote are the numbers of frames in the switch and in the ring. High is the
	// number of waiting frames at which frames go to the ring. Used is how many of the ring's
	// Entries are in use.
	Waiting int `json:"waiting"`
	High    int `json:"high"`
	Remote  int `json:"remote"`
	Used    int `json:"used"`
	Entries int `json:"entries"`
	// The fields from Stored to Dropped count frames.
	Stored  uint64          `json:"stored"`
	Loaded  uint64          `json:"loaded"`
	Lost    uint64          `json:"lost"`
	Dropped uint64          `json:"dropped"`
	Stores  Moved           `json:"stores"`
	Loads   Moved           `json:"loads"`
	Ring    []extmem.Server `json:"ring"`
}

func (m *Machine) list(clock.Time) (list []Item) {
	for _, q := range m.queues {
		i := Item{
			Rule: q.id, Port: q.port, Mode: m.cfg.Kind.Mode.String(), Rate: q.Rate, Waiting: q.waiting(), High: q.High, Remote: int(q.ring.Remote()),
			Used: q.ring.Used(), Entries: q.Cells, Stored: q.stats.Stored, Loaded: q.stats.Loaded, Lost: q.stats.Lost,
			Dropped: q.stats.Full + q.stats.Blocked + q.stats.Long + q.stats.Down, Stores: q.stores.report(), Loads: q.loads.report(),
		}
		if q.unlimited() {
			i.Rate = 0
		}
		for _, l := range q.links {
			i.Ring = append(i.Ring, l.Server(l.Up()))
		}
		list = append(list, i)
	}
	return list
}

func Print(out io.Writer, host func(netip.Addr) string, list []Item) error {
	return handler.WriteTable(out, list,
		"no rule queues the frames to a host; add one: `rdmalab switch rules add server=cn0 action=buffer ring=ms0 rate=100Mbit`",
		"RULE\tMODE\tRATE\tWAITING\tREMOTE\tSTORED\tLOADED\tLOST\tDROPPED\tRING", func(i *Item) string {
			rate := "-"
			if i.Rate != 0 {
				rate = fault.FormatRate(i.Rate)
			}
			return fmt.Sprintf("%s\t%s\t%s\t%d of %d\t%d (%d of %d)\t%d\t%d\t%d\t%d\t%s", i.Rule, i.Mode, rate, i.Waiting, i.High, i.Remote, i.Used, i.Entries,
				i.Stored, i.Loaded, i.Lost, i.Dropped, extmem.Names(i.Ring, host))
		})
}

func (m *Machine) Info(clock.Time) handler.Info {
	local, remote := m.Waiting()
	list := append(handler.Counters("", m.Stats()),
		handler.Counter{Name: "waiting", Value: uint64(local), Help: "frames that wait in the switch"},
		handler.Counter{Name: "remote", Value: uint64(remote), Help: "frames in rings in servers' memory"})
	if m.cfg.Kind.Mode == rules.Hardened {
		list = append(list, handler.Counters("requester_", m.Links.Requested())...)
	}
	return handler.Info{Mode: m.cfg.Kind.Mode, Counters: list}
}

// Tables lists the queues and rings. They cannot be cleared: frames would be lost.
func (m *Machine) Tables() []handler.Table {
	if len(m.queues) == 0 {
		return nil
	}
	local := handler.Table{Name: "queued frames", Doc: "frames that wait in the switch for their port"}
	remote := handler.Table{Name: "ring entries", Doc: "entries in servers' memory with frames for a port"}
	for _, q := range m.queues {
		local.Used += q.waiting()
		local.Max += 2*q.High + q.ring.Window()
		remote.Used += q.ring.Used()
		remote.Max += q.Cells
	}
	if m.cfg.Kind.Mode == rules.Published {
		local.Name, remote.Name = "published "+local.Name, "published "+remote.Name
	}
	return []handler.Table{local, remote}
}

func (m *Machine) ClearTable(string) int { return 0 }

// Spec declares what a chip would need: for each port the state of its ring, and for each
// connection the requests in flight. The frames that wait are in the chip's packet memory.
func (m *Machine) Spec() pipeline.Part {
	ports, links, window := max(1, len(m.queues)), max(1, len(m.Links.All)), 0
	for _, q := range m.queues {
		window = max(window, q.ring.Window())
	}
	window = cmp.Or(window, rules.MaxDepth)
	prefix := ""
	if m.cfg.Kind.Mode == rules.Published {
		prefix = "published "
	}
	p := pipeline.Part{
		Tables: []pipeline.TableSpec{{Name: prefix + "buffers", KeyBits: 8, ValueBits: 16, Entries: rules.MaxRules}},
		Registers: []pipeline.RegisterSpec{
			// An entry has three positions in the ring, the numbers of two frames, the ring's tag, the
			// length of the queue, and the time at which the port is free.
			{Name: prefix + "rings", Width: 3*32 + 2*32 + 32 + 16 + 48, Entries: ports},
			// An entry has a connection's queue pair, PSNs, window, and memory region.
			{Name: prefix + "ring links", Width: 24 + 2*24 + 16 + 64 + 32 + 64, Entries: links},
		},
		Needs: []pipeline.Need{
			{Kind: pipeline.NeedPackets, What: "WRITEs of frames, READs", Count: 2},
			{Kind: pipeline.NeedICRC, What: "of WRITEs, over a frame"},
		},
	}
	if m.cfg.Trusting {
		return p
	}
	p.Registers = append(p.Registers,
		// Each register has the address of a request, and whether it is a READ or a WRITE.
		pipeline.RegisterSpec{Name: "buffer requests", Width: 64 + 1, Entries: links * extmem.InFlight, Each: extmem.InFlight})
	p.Needs = append(p.Needs,
		pipeline.Need{Kind: pipeline.NeedStore, What: "entries that came back before older ones", Count: ports * window, Bits: 8 * defaultEntry},
		pipeline.Need{Kind: pipeline.NeedTimer, What: "retransmissions, one for each connection to a server of a ring", Count: links})
	return p
}
