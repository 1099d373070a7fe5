package chipcost

import "github.com/rdmalab/rdmalab/swordbox/pipeline"

// Budget is the chip resources that a program would need, in each of its modes.
type Budget struct {
	Program string `json:"program"`
	Chip    Chip   `json:"chip"`
	// Modes has one report for each mode of the program; one without a name if the program has no
	// modes.
	Modes []Report `json:"modes"`
	// Authors is what the authors of SwordBox give for their P4 program, to compare with
	// Report.Uses.
	Authors []Figure8 `json:"authors"`
}

// Report is the layout of a program in one mode.
type Report struct {
	Mode  string `json:"mode"`
	Items []Item `json:"items"`
	// Bits is the declared state in bits; Outside is the part of it that is in no stage.
	Bits    int `json:"bits"`
	Outside int `json:"outsideBits"`
	// Blocks is the number of memory blocks for the state in stages. Stages is the number of these
	// stages; Beyond is how many of the blocks are in stages that the chip does not have.
	Blocks int `json:"blocks"`
	Beyond int `json:"beyondBlocks"`
	Stages int `json:"stages"`
	// Learned adds up the tables into which packets insert. Rings adds up the arrays that are
	// divided among connections.
	Learned Sum `json:"learned"`
	Rings   Sum `json:"rings"`
	// Needs lists what the program does and no stage of a chip can do.
	Needs []pipeline.Need `json:"needs"`
	// Uses is the share of each part of the program.
	Uses []Use `json:"uses"`
	// Fits says that the chip has enough stages, that all state is in stages, that packets insert
	// into no table, and that Needs is empty.
	Fits bool `json:"fits"`
}

// Sum adds up several items.
type Sum struct {
	Items   int `json:"items"`
	Entries int `json:"entries"`
	Bits    int `json:"bits"`
	Blocks  int `json:"blocks"`
	Beyond  int `json:"beyondBlocks"`
}

func (s *Sum) add(i *Item) {
	s.Items++
	s.Entries += i.Entries
	s.Bits += i.Bits
	s.Blocks += i.Blocks
	s.Beyond += i.Beyond
}

// Use is the share that a part of a program takes of each resource, in percent of all stages: more
// than 100 does not fit.
type Use struct {
	Part string `json:"part"`
	// SRAM is blocks, Units stateful units, Tables logical tables.
	SRAM   float64 `json:"sram"`
	Units  float64 `json:"units"`
	Tables float64 `json:"tables"`
}

// Of lays a program out, in each of its modes.
func Of(s pipeline.Spec, c Chip) Budget {
	b := Budget{Program: s.Name, Chip: c, Authors: AuthorsFigure8()}
	modes := s.Modes
	if len(modes) == 0 {
		modes = []string{""}
	}
	for _, m := range modes {
		b.Modes = append(b.Modes, report(&s, m, &c))
	}
	return b
}

// report lays out the parts of a mode, and those of all modes.
func report(s *pipeline.Spec, mode string, c *Chip) Report {
	r := Report{Mode: mode, Items: []Item{}, Needs: []pipeline.Need{}, Uses: []Use{}}
	p := place{chip: c}
	for i := range s.Parts {
		part := &s.Parts[i]
		if part.Mode != "" && part.Mode != mode {
			continue
		}
		first := len(r.Items)
		for _, t := range part.Tables {
			r.Items = append(r.Items, tableItem(t, c))
		}
		for _, g := range part.Registers {
			r.Items = append(r.Items, registerItem(g, c))
		}
		for j := range r.Items[first:] {
			item := &r.Items[first+j]
			item.Part = part.Name
			p.put(item)
			r.add(item)
		}
		r.Bits += part.Bits()
		r.Needs = append(r.Needs, part.Needs...)
		r.Uses = append(r.Uses, use(part.Name, r.Items[first:], c))
	}
	r.Fits = r.Outside == 0 && r.Stages <= c.Stages && r.Learned.Items == 0 && len(r.Needs) == 0
	return r
}

func (r *Report) add(i *Item) {
	r.Blocks += i.Blocks
	r.Beyond += i.Beyond
	r.Stages = max(r.Stages, i.Last)
	if i.Note != "" {
		r.Outside += i.Bits
	}
	if i.Learned {
		r.Learned.add(i)
	}
	if i.Each > 0 {
		r.Rings.add(i)
	}
}

func use(part string, items []Item, c *Chip) Use {
	blocks, units, tables := 0, 0, 0
	for i := range items {
		blocks += items[i].Blocks
		units += items[i].Units
		tables += items[i].stages()
	}
	of := func(n, each int) float64 { return 100 * float64(n) / float64(c.Stages*each) }
	return Use{part, of(blocks, c.Blocks), of(units, c.Units), of(tables, c.Tables)}
}

// Need lists the needs of a kind, and sums their counts and bits. For packets made by the program
// (NeedPackets) count is the largest number for one arriving packet.
func (r *Report) Need(k pipeline.NeedKind) (list []pipeline.Need, count, bits int) {
	for _, n := range r.Needs {
		if n.Kind != k {
			continue
		}
		list = append(list, n)
		if bits += n.Count * n.Bits; k == pipeline.NeedPackets {
			count = max(count, n.Count)
		} else {
			count += n.Count
		}
	}
	return list, count, bits
}
