package budget

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// small is a chip for sums in the head: a stage has 4 blocks of 8 words of 16 bits, and 2 units.
func small() Chip {
	return Chip{Name: "small", Stages: 3, Blocks: 4, BlockWords: 8, WordBits: 16, Units: 2, UnitBits: 32, UnitBlocks: 2}
}

func TestLayout(t *testing.T) {
	for name, tc := range map[string]struct {
		tables      []pipeline.TableSpec
		registers   []pipeline.RegisterSpec
		blocks      int
		stages      int
		first, last int // of the last item
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
		s := pipeline.Spec{Name: "test", Tables: tc.tables, Registers: tc.registers}
		r := Of(s, small())
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

// The paper's prototype: the map entries of 512 clients take 2 MB and fit.
func TestPaper(t *testing.T) {
	const clients, ring = 512, 128
	s := pipeline.Spec{Registers: []pipeline.RegisterSpec{{Name: "map entries", Width: 256, Entries: clients * ring}}}
	r := Of(s, Tofino())
	if got := float64(r.Bits) / 8 / (1 << 20); got != 2 || !r.Fits {
		t.Errorf("%.1f MiB, %+v", got, r)
	}
	c := Tofino()
	if mib := c.SRAM() / 8 >> 20; mib != 15 {
		t.Errorf("the chip has %d MiB", mib)
	}
}
