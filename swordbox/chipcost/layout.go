package chipcost

import (
	"fmt"

	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Item describes a table or an array of registers, and the stages that it would occupy.
type Item struct {
	// Part is the part of the program that declares the item.
	Part string `json:"part"`
	Name string `json:"name"`
	// Kind is "table" or "register".
	Kind    string `json:"kind"`
	Entries int    `json:"entries"`
	// EntryBits is the width of an entry in bits. Bits is the size of all entries as declared, in
	// bits.
	EntryBits int `json:"entryBits"`
	Bits      int `json:"bits"`
	// Blocks and Units are how many memory blocks and stateful units the item takes; a table takes
	// no units. Beyond is how many of the blocks are in stages that the chip does not have.
	Blocks int `json:"blocks"`
	Beyond int `json:"beyond"`
	Units  int `json:"units,omitempty"`
	// First and Last are the first and the last stage of the item, counted from 1. They may be
	// larger than the chip's number of stages. 0 means that the item is in no stage.
	First int `json:"first"`
	Last  int `json:"last"`
	// Learned is true if packets insert into the table. Each is how many entries belong to one
	// connection; 0 means that the array is not divided among connections.
	Learned bool `json:"learned,omitempty"`
	Each    int  `json:"each,omitempty"`
	// Note says why the item is in no stage, so that the chip would need other memory for it. ""
	// means that it is in a stage.
	Note string `json:"note,omitempty"`
}

func (i *Item) stages() int {
	if i.First == 0 {
		return 0
	}
	return i.Last - i.First + 1
}

func tableItem(t pipeline.TableSpec, c *Chip) Item {
	i := Item{Name: t.Name, Kind: "table", Entries: t.Entries, EntryBits: t.KeyBits + t.ValueBits, Bits: t.Bits(), Learned: t.Learned}
	i.Blocks = up(i.EntryBits, c.WordBits) * up(t.Entries, c.BlockWords)
	return i
}

func registerItem(g pipeline.RegisterSpec, c *Chip) Item {
	i := Item{Name: g.Name, Kind: "register", Entries: g.Entries, EntryBits: g.Width, Bits: g.Bits(), Each: g.Each}
	if g.Width > c.widest() {
		i.Note = fmt.Sprintf("one packet cannot write %d bits: memory beside the stages", g.Width)
		return i
	}
	unit := min(c.UnitBits, power(g.Width))
	arrays := up(g.Width, unit)
	blocks := up(g.Entries*unit, c.BlockWords*c.WordBits)
	i.Units = arrays * up(blocks, c.UnitBlocks)
	i.Blocks = arrays * blocks
	return i
}

// place records how full the chip's stages are while items (tables and registers) are placed.
type place struct {
	chip          *Chip
	blocks, units []int // how many blocks and units are used; index is the stage
	from          int   // the first stage that the next item may use
}

// maxStages bounds the number of stages that put counts.
const maxStages = 1 << 16

// put places an item. An item may be split among stages; then each part of an array of registers
// takes stateful units of its own.
func (p *place) put(i *Item) {
	each := 0 // how many blocks the item has for each of its stateful units; 0 if it needs none
	if i.Units > 0 {
		each, i.Units = up(i.Blocks, i.Units), 0
	}
	blocks := i.Blocks
	for s := p.from; blocks > 0 && s < maxStages; s++ {
		if s == len(p.blocks) {
			p.blocks, p.units = append(p.blocks, 0), append(p.units, 0)
		}
		n, u := min(blocks, p.chip.Blocks-p.blocks[s]), 0
		if each > 0 {
			n = min(n, each*(p.chip.Units-p.units[s]))
			u = up(n, each)
		}
		if n == 0 {
			continue
		}
		blocks -= n
		p.blocks[s] += n
		p.units[s] += u
		i.Units += u
		if i.First == 0 {
			i.First = s + 1
		}
		if i.Last = s + 1; i.Last > p.chip.Stages {
			i.Beyond += n
		}
		p.from = s
	}
	i.Beyond += blocks // these blocks would be behind stage maxStages
}
