// Package budget says what a switch program would take of a programmable switching chip: it lays the tables and registers
// that the program declares out in the stages of a pipeline. It is a rough rule, with figures that are in public papers
// about such chips, and no compiler: it tells kilobytes from gigabytes and one stage from thirty.
//
// The rule. Tables and registers are placed in the order of their declaration, each from the stage on in which the one
// before it ended, as if each needed the result of the one before. An entry of an exact-match table takes whole words of a
// memory block side by side. A register wider than a stateful unit takes several units. What does not fit into a stage
// goes on in the next one.
package budget

import (
	"fmt"

	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Chip is what one pipeline of a chip has.
type Chip struct {
	Name string `json:"name"`
	// Stages of match and action that a packet passes once.
	Stages int `json:"stages"`
	// Blocks of memory in each stage; a block has BlockWords words of WordBits bits.
	Blocks     int `json:"blocksPerStage"`
	BlockWords int `json:"blockWords"`
	WordBits   int `json:"wordBits"`
	// Units are the stateful units of a stage: each can change one register of at most UnitBits bits for a packet, in an
	// array of at most UnitBlocks blocks.
	Units      int `json:"unitsPerStage"`
	UnitBits   int `json:"unitBits"`
	UnitBlocks int `json:"unitBlocks"`
}

// Tofino is a chip like the one of the paper's prototype, by published figures: 12 stages with 80 SRAM blocks of 16 KiB
// and 4 stateful units each.
func Tofino() Chip {
	return Chip{Name: "Tofino-like", Stages: 12, Blocks: 80, BlockWords: 1024, WordBits: 128, Units: 4, UnitBits: 64, UnitBlocks: 35}
}

// SRAM is the memory of all stages in bits.
func (c *Chip) SRAM() int { return c.Stages * c.Blocks * c.BlockWords * c.WordBits }

// widest is the widest register that is sensible: all stateful units of two stages.
func (c *Chip) widest() int { return 2 * c.Units * c.UnitBits }

// Item is a table or an array of registers and where it would be.
type Item struct {
	Name string `json:"name"`
	// Kind is table or register.
	Kind    string `json:"kind"`
	Entries int    `json:"entries"`
	// EntryBits is the width of an entry, Bits that of all as declared.
	EntryBits int `json:"entryBits"`
	Bits      int `json:"bits"`
	// Blocks and Units that it takes; Units of stateful processing are 0 for a table.
	Blocks int `json:"blocks"`
	Units  int `json:"units,omitempty"`
	// First and Last are its stages, from 1. They may be beyond what the chip has. 0: it is in no stage.
	First int `json:"first"`
	Last  int `json:"last"`
	// Note says why it is in no stage: such a chip needs other memory for it. "" if it is in some.
	Note string `json:"note,omitempty"`
}

// Report is the layout of a program.
type Report struct {
	Program string `json:"program"`
	Chip    Chip   `json:"chip"`
	Items   []Item `json:"items"`
	// Bits is the declared state; Outside of it is in no stage.
	Bits    int `json:"bits"`
	Outside int `json:"outsideBits"`
	// Blocks is the memory that the rest takes, Stages in how many stages.
	Blocks int `json:"blocks"`
	Stages int `json:"stages"`
	// Fits says that the chip has as many stages, and that nothing is outside of them.
	Fits bool `json:"fits"`
}

// place is how full the stages are.
type place struct {
	chip          *Chip
	blocks, units []int // used, by stage
	from          int   // the first stage that the next item may use
}

// maxStages bounds the stages that are counted.
const maxStages = 1 << 16

// Of lays a program out.
func Of(s pipeline.Spec, c Chip) Report {
	r := Report{Program: s.Name, Chip: c, Items: []Item{}, Bits: s.Bits()}
	p := place{chip: &c}
	for _, t := range s.Tables {
		i := Item{Name: t.Name, Kind: "table", Entries: t.Entries, EntryBits: t.KeyBits + t.ValueBits, Bits: t.Bits()}
		i.Blocks = up(i.EntryBits, c.WordBits) * up(t.Entries, c.BlockWords)
		p.put(&i)
		r.Items = append(r.Items, i)
	}
	for _, g := range s.Registers {
		i := Item{Name: g.Name, Kind: "register", Entries: g.Entries, EntryBits: g.Width, Bits: g.Bits()}
		unit := min(c.UnitBits, power(g.Width))
		arrays := up(g.Width, unit)
		blocks := up(g.Entries*unit, c.BlockWords*c.WordBits)
		if g.Width > c.widest() {
			i.Note = fmt.Sprintf("one packet cannot write %d bits: memory beside the stages", g.Width)
			r.Outside += i.Bits
		} else {
			i.Units = arrays * up(blocks, c.UnitBlocks)
			i.Blocks = arrays * blocks
			p.put(&i)
		}
		r.Items = append(r.Items, i)
	}
	for _, i := range r.Items {
		r.Blocks += i.Blocks
		r.Stages = max(r.Stages, i.Last)
	}
	r.Fits = r.Outside == 0 && r.Stages <= c.Stages
	return r
}

// put places an item.
func (p *place) put(i *Item) {
	blocks, units := i.Blocks, i.Units
	for s := p.from; (blocks > 0 || units > 0) && s < maxStages; s++ {
		if s == len(p.blocks) {
			p.blocks, p.units = append(p.blocks, 0), append(p.units, 0)
		}
		n := min(blocks, p.chip.Blocks-p.blocks[s])
		u := min(units, p.chip.Units-p.units[s])
		if i.Units > 0 {
			// An array is in the stage of its unit.
			n = min(n, u*up(i.Blocks, i.Units))
			u = up(n, up(i.Blocks, i.Units))
		}
		if n == 0 && blocks > 0 {
			continue
		}
		blocks, units = blocks-n, units-u
		p.blocks[s] += n
		p.units[s] += u
		if i.First == 0 {
			i.First = s + 1
		}
		i.Last = s + 1
		p.from = s
		if blocks == 0 {
			units = 0
		}
	}
}

// up is a/b, rounded up.
func up(a, b int) int { return (a + b - 1) / b }

// power is the smallest width of registers, in bits, that holds n.
func power(n int) int {
	w := 8
	for w < n {
		w *= 2
	}
	return w
}
