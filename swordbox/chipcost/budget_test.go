package chipcost

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// small is a chip for which sums are easy: a stage has 4 blocks of 8 words of 16 bits, and 2 units.
func small() Chip {
	return Chip{Name: "small", Stages: 3, Blocks: 4, BlockWords: 8, WordBits: 16, Units: 2, UnitBits: 32, UnitBlocks: 2, Tables: 5}
}

func TestLayout(t *testing.T) {
	for name, tc := range map[string]struct {
		tables      []pipeline.TableSpec
		registers   []pipeline.RegisterSpec
		blocks      int
		stages      int
		first, last int // stages of the last item
		fits        bool
		note        string
	}{
		"nothing":      {fits: true},
		"one block":    {tables: []pipeline.TableSpec{{KeyBits: 8, ValueBits: 8, Entries: 8}}, blocks: 1, stages: 1, first: 1, last: 1, fits: true},
		"wide entry":   {tables: []pipeline.TableSpec{{KeyBits: 9, ValueBits: 8, Entries: 9}}, blocks: 4, stages: 1, first: 1, last: 1, fits: true},
		"spills over":  {tables: []pipeline.TableSpec{{KeyBits: 8, ValueBits: 8, Entries: 41}}, blocks: 6, stages: 2, first: 1, last: 2, fits: true},
		"goes on":      {tables: []pipeline.TableSpec{{KeyBits: 8, ValueBits: 8, Entries: 24}, {KeyBits: 8, ValueBits: 8, Entries: 16}}, blocks: 5, stages: 2, first: 1, last: 2, fits: true},
		"too much":     {tables: []pipeline.TableSpec{{KeyBits: 8, ValueBits: 8, Entries: 13 * 8}}, blocks: 13, stages: 4, first: 1, last: 4},
		"register":     {registers: []pipeline.RegisterSpec{{Width: 24, Entries: 8}}, blocks: 2, stages: 1, first: 1, last: 1, fits: true},
		"two units":    {registers: []pipeline.RegisterSpec{{Width: 48, Entries: 4}}, blocks: 2, stages: 1, first: 1, last: 1, fits: true},
		"three units":  {registers: []pipeline.RegisterSpec{{Width: 96, Entries: 4}}, blocks: 3, stages: 2, first: 1, last: 2, fits: true},
		"a long array": {registers: []pipeline.RegisterSpec{{Width: 16, Entries: 32}}, blocks: 4, stages: 1, first: 1, last: 1, fits: true},
		"a packet":     {registers: []pipeline.RegisterSpec{{Width: 1024, Entries: 1}}, note: "one packet cannot write 1024 bits"},
	} {
		s := pipeline.Spec{Name: "test", Parts: []pipeline.Part{{Tables: tc.tables, Registers: tc.registers}}}
		r := Of(s, small()).Modes[0]
		if r.Blocks != tc.blocks || r.Stages != tc.stages || r.Fits != tc.fits || r.Bits != s.Bits() {
			t.Errorf("%s: %+v", name, r)
		}
		if n := len(r.Items); n > 0 {
			i := r.Items[n-1]
			if i.First != tc.first || i.Last != tc.last || !strings.Contains(i.Note, tc.note) || (i.Note == "") != (tc.note == "") {
				t.Errorf("%s: %+v", name, i)
			}
		}
	}
}

// Map entries of 512 clients take 2 MB, and fit, as the paper says. The 2 MB are an input: the paper
// has 512 entries of 64 bits for each client, and these are 128 entries of 256 bits.
func TestPaper(t *testing.T) {
	const clients, ring = 512, 128
	s := pipeline.Spec{Parts: []pipeline.Part{{Registers: []pipeline.RegisterSpec{{Name: "map entries", Width: 256, Entries: clients * ring}}}}}
	r := Of(s, Tofino()).Modes[0]
	if got := float64(r.Bits) / 8 / (1 << 20); got != 2 || !r.Fits {
		t.Errorf("%.1f MiB, %+v", got, r)
	}
	c := Tofino()
	if mib := c.Stages * c.Blocks * c.BlockWords * c.WordBits / 8 >> 20; mib != 15 {
		t.Errorf("the chip has %d MiB", mib)
	}
}

// misfits is a program with one example of everything that a chip cannot do, in one of its modes.
func misfits() pipeline.Spec {
	return pipeline.Spec{
		Name: "test", Modes: []string{"plain", "rich"},
		Parts: []pipeline.Part{
			{Name: "base", Registers: []pipeline.RegisterSpec{{Name: "psn", Width: 16, Entries: 8}}},
			{
				Name: "rich", Mode: "rich",
				Tables: []pipeline.TableSpec{{Name: "words", KeyBits: 8, ValueBits: 8, Entries: 16, Learned: true}},
				Registers: []pipeline.RegisterSpec{
					{Name: "ring", Width: 16, Entries: 80, Each: 4},
					{Name: "wide", Width: 1024, Entries: 2},
				},
				Needs: []pipeline.Need{
					{Kind: pipeline.NeedStore, What: "copies", Count: 3, Bits: 800},
					{Kind: pipeline.NeedStore, What: "held", Count: 2, Bits: 100},
					{Kind: pipeline.NeedTimer, What: "retries", Count: 7},
					{Kind: pipeline.NeedPackets, What: "answers", Count: 4},
					{Kind: pipeline.NeedPackets, What: "refusals", Count: 6},
					{Kind: pipeline.NeedICRC, What: "of both"},
				},
			},
		},
	}
}

// A mode has its own parts and those that all modes share; a part that does not fit counts in its
// mode only.
func TestWhatDoesNotFitIsCounted(t *testing.T) {
	b := Of(misfits(), small())
	if len(b.Modes) != 2 || len(b.Authors) != 5 {
		t.Fatalf("%+v", b)
	}
	if r := b.Modes[0]; r.Mode != "plain" || !r.Fits || r.Blocks != 1 || r.Beyond != 0 || len(r.Items) != 1 || len(r.Needs) != 0 || len(r.Uses) != 1 {
		t.Errorf("%+v", r)
	}
	r := b.Modes[1]
	// The register has 1 block and 1 unit of stage 1, the table 2 blocks. The ring has 10 blocks, 2
	// of each unit: 1 in stage 1, 4 in stages 2 and 3, and 1 in a stage that the chip does not
	// have.
	if r.Mode != "rich" || r.Fits || r.Blocks != 13 || r.Stages != 4 || r.Beyond != 1 || r.Outside != 2*1024 {
		t.Errorf("%d blocks, %d beyond, %d stages, %d bits outside: %+v", r.Blocks, r.Beyond, r.Stages, r.Outside, r.Items)
	}
	if want := (Sum{Items: 1, Entries: 16, Bits: 256, Blocks: 2}); r.Learned != want {
		t.Errorf("learned %+v, want %+v", r.Learned, want)
	}
	if want := (Sum{Items: 1, Entries: 80, Bits: 1280, Blocks: 10, Beyond: 1}); r.Rings != want {
		t.Errorf("rings %+v, want %+v", r.Rings, want)
	}
	for k, want := range map[pipeline.NeedKind][3]int{
		pipeline.NeedStore: {2, 5, 2600}, pipeline.NeedTimer: {1, 7, 0}, pipeline.NeedPackets: {2, 6, 0}, pipeline.NeedICRC: {1, 0, 0},
	} {
		if list, count, bits := r.Need(k); [3]int{len(list), count, bits} != want {
			t.Errorf("%s: %d, %d, %d bits, want %v", k, len(list), count, bits, want)
		}
	}
	// Percent of 12 blocks, 6 units and 15 logical tables: the ring has 1 + 2 + 2 + 1 units and is
	// in 4 stages, the table in 1; the wide array takes none.
	if len(r.Uses) != 2 || r.Uses[1] != (Use{"rich", 100, 100, 100 * 5. / 15}) {
		t.Errorf("%+v", r.Uses)
	}
}

// Each of the misfits alone keeps a program from fitting.
func TestEachMisfitCounts(t *testing.T) {
	for name, p := range map[string]pipeline.Part{
		"a learned table":  {Tables: []pipeline.TableSpec{{KeyBits: 8, ValueBits: 8, Entries: 1, Learned: true}}},
		"a wide register":  {Registers: []pipeline.RegisterSpec{{Width: 1024, Entries: 1}}},
		"a stage too many": {Tables: []pipeline.TableSpec{{KeyBits: 8, ValueBits: 8, Entries: 13 * 8}}},
		"a timer":          {Needs: []pipeline.Need{{Kind: pipeline.NeedTimer, What: "retries", Count: 1}}},
	} {
		if r := Of(pipeline.Spec{Parts: []pipeline.Part{p}}, small()).Modes[0]; r.Fits {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// The blocks in the stages never exceed those of the chip, and the remaining blocks are in stages
// behind the last one.
func TestBeyond(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var p pipeline.Part
		for range r.IntN(6) {
			p.Tables = append(p.Tables, pipeline.TableSpec{KeyBits: 1 + r.IntN(40), ValueBits: r.IntN(40), Entries: 1 + r.IntN(60)})
		}
		for range r.IntN(6) {
			p.Registers = append(p.Registers, pipeline.RegisterSpec{Width: 1 + r.IntN(100), Entries: 1 + r.IntN(40)})
		}
		c := small()
		rep := Of(pipeline.Spec{Parts: []pipeline.Part{p}}, c).Modes[0]
		blocks, beyond := 0, 0
		for _, i := range rep.Items {
			blocks, beyond = blocks+i.Blocks, beyond+i.Beyond
			if i.Beyond < 0 || i.Beyond > i.Blocks || (i.Beyond > 0) != (i.Last > c.Stages) || i.First > c.Stages && i.Beyond != i.Blocks {
				t.Errorf("seed %d: %+v", seed, i)
			}
		}
		if blocks != rep.Blocks || beyond != rep.Beyond || blocks-beyond > c.Stages*c.Blocks {
			t.Errorf("seed %d: %d blocks, %d beyond: %+v", seed, blocks, beyond, rep)
		}
	}
}
