package chipcost

import "github.com/rdmalab/rdmalab/swordbox/pipeline"

// Budget lists the chip resources that a program would need, in each of its modes.
type Budget struct {
	Program string `json:"program"`
	Chip    Chip   `json:"chip"`
	// Modes has a report for each mode of the program. A program without modes has one report
	// without a name.
	Modes []Report `json:"modes"`
	// Authors is what the authors of SwordBox report for their P4 program, for comparison with
	// Report.Uses.
	Authors []Figure8 `json:"authors"`
}

// Report is the layout of a program in one mode.
type Report struct {
	Mode  string `json:"mode"`
	Items []Item `json:"items"`
	// Bits is the declared state in bits. Outside is how much of it is in no stage.
	Bits    int `json:"bits"`
	Outside int `json:"outsideBits"`
	// Blocks is the number of memory blocks for the state that is in stages. Stages is the number
	// of the last stage with such blocks, from 1. Beyond is how many of the blocks are in stages
	// that the chip does not have.
	Blocks int `json:"blocks"`
	Beyond int `json:"beyondBlocks"`
	Stages int `json:"stages"`
	// Learned is the sum of the tables into which packets insert. Rings is the sum of the arrays
	// that are divided among connections.
	Learned Sum `json:"learned"`
	Rings   Sum `json:"rings"`
	// Needs lists what the program does but no stage of a chip can do.
	Needs []pipeline.Need `json:"needs"`
	// Uses lists what each part of the program takes of the chip.
	Uses []Use `json:"uses"`
	// Fits is true if the chip has enough stages, all state is in stages, packets insert into no
	// table, and Needs is empty.
	Fits bool `json:"fits"`
}

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

// Use is what a part of a program takes of each resource, in percent of what all stages of the chip
// have. More than 100 does not fit.
type Use struct {
	Part string `json:"part"`
	// SRAM is the share of memory blocks, Units the share of stateful units, and Tables the share
	// of logical tables.
	SRAM   float64 `json:"sram"`
	Units  float64 `json:"units"`
	Tables float64 `json:"tables"`
}

// Of returns the budget of a program on a chip, for each of the program's modes.
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

// report returns the layout of the parts that mode needs, and of those that all modes need.
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

// Need returns the needs of a kind. count is the sum of their counts, and bits their size. For
// packets that the program makes (NeedPackets), count is the largest number for one arriving
// packet.
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

// Figure8 is a line of Figure 8 of the SwordBox paper. It gives the resources of a part of the
// authors' P4 program, in percent of a Tofino, as their compiler reports them. A line is not the
// sum of the lines above it: SRAM falls from the first line to the second.
type Figure8 struct {
	Part string `json:"part"`
	// Crossbar is the exact-match crossbar. MapRAM is the memory beside the stateful units. A Use
	// has no fields for Crossbar, HashBits, Gateways and MapRAM.
	Crossbar float64 `json:"crossbar"`
	HashBits float64 `json:"hashBits"`
	Gateways float64 `json:"gateways"`
	// SRAM, Units (meter ALUs) and Tables (logical tables) are comparable with the fields of a Use.
	SRAM   float64 `json:"sram"`
	MapRAM float64 `json:"mapRam"`
	Units  float64 `json:"units"`
	Tables float64 `json:"tables"`
}

// AuthorsFigure8 returns the lines of Figure 8, from the data in the authors' repository. Their
// program steers: it moves no request to a shared connection and replaces no atomic, and the NICs
// do not check the ICRC.
func AuthorsFigure8() []Figure8 {
	return []Figure8{
		{"parsing and forwarding", 4.69, 9.62, 0, 5.00, 0, 0, 12.50},
		{"+ connection tracking", 6.84, 5.89, 12.50, 3.44, 3.65, 18.75, 15.62},
		{"+ write steering", 7.25, 4.74, 16.96, 9.64, 14.88, 28.57, 19.64},
		{"+ read steering", 9.98, 9.94, 23.61, 18.61, 30.09, 44.44, 29.17},
		{"simple switch.p4", 17.41, 16.41, 8.93, 18.39, 2.68, 7.14, 24.11},
	}
}
