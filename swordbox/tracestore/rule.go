package tracestore

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/packettrace"
	"github.com/rdmalab/rdmalab/swordbox/statestore"
)

// Bounds of rules of action trace.
const (
	// MaxRecords is how many records a ring can have. MaxBatch is how many a WRITE can have: those of
	// the longest path MTU.
	MaxRecords, MaxBatch = 1 << 20, 4096 / packettrace.Size

	defaultRecords, defaultBatch = 4096, 8
	// defaultWait is how long a record waits for others, if the rule has no key combine.
	defaultWait = 100 * time.Microsecond
)

// Keys that only rules with action trace have.
const (
	keyRecords = "records"
	keyBatch   = "batch"
)

// Action is the action trace.
var Action = rules.Register(rules.Definition{
	Name: "trace", Doc: "writes the headers of the packets that a host sends, of any protocol, to a ring in the memory of servers, all or a sample; see `rdmalab switch traced`",
	Queues: true, Dials: func(*rules.Rule) bool { return true }, Check: check, Together: together, Memory: memoryOf, Hosts: []string{hotwords.KeyStore},
	Shares: []string{hotwords.KeyStore, statestore.KeyAt, statestore.KeyCombine, statestore.KeySample, statestore.KeyChoose, statestore.KeySeed, extmem.KeyCap, extmem.KeyDSCP},
	Keys: []rules.Field{
		rules.Option(keyRecords, "65536", fmt.Sprintf("with action trace: records of %d bytes in the ring on all servers together, 1 to %d; default: %d", packettrace.Size, MaxRecords, defaultRecords),
			extmem.Between(1, MaxRecords)),
		rules.Option(keyBatch, "16", fmt.Sprintf("with action trace: records that one WRITE has at most, 1 to %d, as far as they fit into the path MTU; default: %d", MaxBatch, defaultBatch), extmem.Between(1, MaxBatch)),
	},
})

func check(r *rules.Rule) error {
	switch {
	case !statestore.Selects(r):
		return fmt.Errorf("action trace needs the key %s", hotwords.KeyStore)
	case r.Service == "":
		return errors.New("service none: the switch must connect to the server of the key store to learn where its memory is; name its service")
	case r.Mode != rules.Hardened:
		return fmt.Errorf("action trace has no mode %v; leave the mode out", r.Mode)
	case r.From != 0 || r.To != 0 || r.RKey != 0:
		return errors.New("range and rkey select requests; action trace takes all packets of the host")
	case r.Shards != 0:
		return fmt.Errorf("shards has no meaning with action trace; name several servers in %s", hotwords.KeyStore)
	}
	return statestore.CheckSample(r)
}

// together returns what is wrong with the rules of action trace of one set. Rules that name the same
// server share its connection. Rings must not overlap, unless they are one ring.
func together(list []*rules.Rule) error {
	for i, r := range list {
		a := LayoutOf(r)
		for _, s := range list[:i] {
			b := LayoutOf(s)
			switch {
			case a.Shares(&b.Area) && (r.Service != s.Service || r.Depth() != s.Depth() || r.MTU != s.MTU || extmem.LimitsOf(r, 0) != extmem.LimitsOf(s, 0)):
				return fmt.Errorf("rules %s and %s write to the memory of the same server; service, depth, mtu, cap and dscp must be the same in both", s.ID, r.ID)
			case a.Overlaps(&b.Area) && !a.same(&b):
				return fmt.Errorf("rules %s and %s have rings in the same server that overlap; give one of them %s=%#x, or make %s, %s, %s, %s, %s and %s the same in both, so that both write to one ring",
					s.ID, r.ID, statestore.KeyAt, max(a.End(), b.End()), hotwords.KeyStore, statestore.KeyAt, keyRecords, keyBatch, statestore.KeyCombine, statestore.KeySample)
			}
		}
	}
	return nil
}

func memoryOf(r *rules.Rule) rules.Memory {
	l := LayoutOf(r)
	return l.Area.Memory(r.Service, statestore.KeyAt)
}

// Layout is the ring for which a rule asks.
type Layout struct {
	// Area is where the cells of the ring are: each has a record.
	extmem.Area
	// Batch is how many records a WRITE has at most. Wait is how long a record waits for others.
	Batch int
	Wait  time.Duration
	// Every is how many packets there are for each one that is recorded.
	Every uint64
}

// LayoutOf returns the layout of a valid rule. Layout.Servers leaves out a server whose name is not
// resolved yet.
func LayoutOf(r *rules.Rule) Layout {
	l := Layout{
		Area: extmem.Area{
			Servers: extmem.Servers(r.Options[hotwords.KeyStore]), Offset: extmem.Offset(r.Options[statestore.KeyAt]),
			Cells: extmem.Number(r.Options[keyRecords], defaultRecords), Size: packettrace.Size,
		},
		Batch: extmem.Number(r.Options[keyBatch], defaultBatch), Wait: defaultWait, Every: cmp.Or(statestore.EveryOf(r), 1),
	}
	if r.Options[statestore.KeyCombine] != "" {
		l.Wait = statestore.CombineOf(r)
	}
	return l
}

// same reports whether both layouts have one ring.
func (l *Layout) same(o *Layout) bool {
	return l.Same(&o.Area) && l.Batch == o.Batch && l.Wait == o.Wait && l.Every == o.Every
}
