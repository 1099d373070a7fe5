package steer

import (
	"fmt"
	"net/netip"
	"reflect"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/mode"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Stats counts what a Machine did.
type Stats struct {
	Stores   uint64 `name:"stores" help:"superblocks of stores that were learnt"`
	Unusable uint64 `name:"stores_unusable" help:"stores whose nodes carry no key, or that do not say how they are arranged"`
	Nodes    uint64 `name:"nodes" help:"data WRITEs of nodes"`
	Appends  uint64 `name:"appends"`
	Reads    uint64 `name:"reads" help:"READs of nodes that are known"`
	// SteeredAppends and SteeredReads went to another node than their client named.
	SteeredAppends uint64 `name:"appends_steered"`
	SteeredReads   uint64 `name:"reads_steered"`
	Linked         uint64 `name:"appends_linked" help:"appends that succeeded"`
	Failed         uint64 `name:"tails_wrong" help:"appends to what was believed to be the tail that failed"`
	Lost           uint64 `name:"appends_lost" help:"appends to another node that failed"`
	Late           uint64 `name:"appends_late" help:"appends that succeeded, whose place in the chain is not known"`
	Foreign        uint64 `name:"appends_foreign" help:"appends of nodes that were not seen"`
	Elsewhere      uint64 `name:"tails_elsewhere" help:"requests not steered since the tail is on another server"`
	Stale          uint64 `name:"stale_steered" help:"appends to entries that have been used again, steered to the tail of their key"`
	Translated     uint64 `name:"translated" help:"requests steered to a node of another version"`
	Answers        uint64 `name:"answers_translated"`
	Unsure         uint64 `name:"appends_unsure" help:"appends out of order, or on connections that are not known well"`
	Unlike         uint64 `name:"tails_unlike" help:"requests not steered since length or key of the tail differ, or its version is lower"`
	Held           uint64 `name:"held" help:"appends that waited for the one before"`
	HeldReads      uint64 `name:"reads_held" help:"READs that waited for the append before"`
	Expired        uint64 `name:"holds_expired" help:"appends that waited too long and went on as they came"`
	LetGo          uint64 `name:"holds_let_go" help:"appends that went on as they came since another request followed"`
	Stalled        uint64 `name:"chains_stalled" help:"appends whose answer did not come in time"`
	Impatient      uint64 `name:"held_copies" help:"copies of waiting appends, dropped"`
	Repeated       uint64 `name:"steered_again" help:"retransmissions sent where the first copy went"`
	Forgotten      uint64 `name:"tails_forgotten"`
	Overwritten    uint64 `name:"nodes_overwritten"`
	NoRoom         uint64 `name:"no_room" help:"appends that were not followed, or could not wait"`
	NodesEvicted   uint64 `name:"nodes_evicted"`
	KeysEvicted    uint64 `name:"keys_evicted"`
}

// Name is what listings call the machine.
func (m *Machine) Name() string { return "steer" }

// Stats returns a copy of the counters.
func (m *Machine) Stats() Stats { return m.stats }

// Info lists the counters. There are no shared connections, moved rows or words.
func (m *Machine) Info(now clock.Time) mode.Info {
	info := mode.Info{Mode: rules.Hard, Keys: m.keys(now)}
	v := reflect.ValueOf(m.stats)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		info.Counters = append(info.Counters, mode.Counter{Name: f.Tag.Get("name"), Value: v.Field(i).Uint(), Help: f.Tag.Get("help")})
	}
	return info
}

// keys lists the warm keys, the hottest first.
func (m *Machine) keys(now clock.Time) []mode.Key {
	if m.hot.warm == nil {
		return nil
	}
	m.hot.rank()
	m.hot.measure(now)
	servers := make(map[uint32]netip.Addr)
	for _, s := range m.stores {
		servers[s.life] = s.server
	}
	var list []mode.Key
	for _, w := range m.hot.order {
		k := mode.Key{Key: w.key, Reads: w.reads, Appends: w.appends, Steered: w.steered, Rate: w.rate}
		if c := m.chains.find(id{w.key, w.life}); c != nil {
			if t := m.nodeAt(c.tail); t != nil {
				k.Tail = &mode.Tail{
					Server: servers[t.life], RKey: t.rkey, VA: t.va, Length: int(t.length), Version: uint8(t.version), Sequence: t.seq,
				}
			}
			for i := c.first; i != none; i = m.wait.list[i].next {
				k.Waiting++
			}
		}
		list = append(list, k)
	}
	return list
}

// Spec declares the tables.
func (m *Machine) Spec() ([]pipeline.TableSpec, []pipeline.RegisterSpec) {
	const lifeBits, serialBits, refBits = 32, 64, 64 + 32 + 64
	tables := []pipeline.TableSpec{
		// Address and life of memory to key, serial, rkey, length, version, flag, place.
		{Name: "steer nodes", KeyBits: 64 + lifeBits, ValueBits: 64 + serialBits + 32 + 32 + 8 + 1 + 64 + 32, Entries: places(m.cfg.Nodes)},
		// Key to tail, place, append under way, list of those that wait.
		{Name: "steer keys", KeyBits: 64 + lifeBits, ValueBits: refBits + 64 + 32 + 1 + 64 + 32 + 32, Entries: places(m.cfg.Keys)},
		// Server to base, rkey, arrangement, life, store.
		{Name: "steer stores", KeyBits: 128, ValueBits: 64 + 32 + 8*superLen + 2*lifeBits, Entries: maxStores},
		// Key to counts, place and rate.
		{Name: "steer hot keys", KeyBits: 64 + lifeBits, ValueBits: 32 + 16 + 3*64 + 64 + 64, Entries: warmSets * warmWays},
	}
	return tables, []pipeline.RegisterSpec{
		{Name: "steer waiting", Width: 72 * 8, Entries: m.cfg.Waiting},
		{Name: "steer sketch", Width: 32, Entries: sketchRows * sketchCols},
	}
}

func versions(d *decision) string { return fmt.Sprintf("version %d shown as %d", d.version, d.seen) }

func hex(asked, target uint64) string { return fmt.Sprintf("steered %#x→%#x", asked, target) }
