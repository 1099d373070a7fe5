package switchd

import (
	"fmt"

	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
	"github.com/rdmalab/rdmalab/swordbox/record"
)

// Table is a table of the switch as GET /tables lists it.
type Table struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	Used int    `json:"used"`
	// Max is its bound.
	Max int `json:"max"`
	// Clear says that it can be cleared.
	Clear bool `json:"clear"`
}

// Names of tables that can be cleared.
const (
	tableMACs  = "macs"
	tableFlows = "flows"
	tableWords = "words"
	tableRows  = "rows"
)

// Tables lists the tables of the switch and its program, and how full they are.
func (d *Daemon) Tables() (list []Table, err error) {
	err = d.Do(func() {
		c, _ := d.sw.Counters()
		list = []Table{
			{tableMACs, "where addresses were last seen", c.MACs, d.sw.MaxMACs(), true},
			{tableFlows, "packets by source, destination, queue pair", c.Flows, d.sw.MaxFlows(), true},
		}
		if p, ok := d.cfg.Program.(*serialize.Program); ok {
			list = append(list, boxTables(p, d)...)
		}
	})
	return list, err
}

func boxTables(p *serialize.Program, d *Daemon) []Table {
	rep := p.Report(d.now)
	words, moved := 0, 0
	for _, m := range rep.Machines {
		words += len(m.Words)
		moved += len(m.Rows)
	}
	list := []Table{
		{tableRows, "connections followed, a row each way", len(rep.Rows), p.Connections().MaxRows(), true},
		{"moved", "rows of which requests were moved", moved, p.Connections().MaxRows(), false},
		{tableWords, "words of memory under rules", words, p.MaxWords(), true},
		{"shared", "connections of the switch's own", len(rep.Dialed), p.MaxShared(), false},
	}
	if o := p.Own(); o != nil {
		s := o.Record().Stats()
		list = append(list,
			Table{"record rows", "rows that a restarted switch refuses", s.Rows, record.MaxRows, false},
			Table{"record conns", "connections that a restarted switch ends", s.Conns, record.MaxConns, false})
	}
	return list
}

// ClearTable empties a table and returns how many entries it had.
func (d *Daemon) ClearTable(name string) (n int, err error) {
	switch name {
	case tableMACs:
		err = d.Do(func() { n = d.sw.ForgetMACs() })
	case tableFlows:
		err = d.Do(func() { n = d.sw.ForgetFlows() })
	case tableWords:
		err = d.box(func(p *serialize.Program) error {
			n = p.ForgetWords()
			return nil
		})
	case tableRows:
		err = d.box(func(p *serialize.Program) error {
			n = p.ForgetRows()
			return nil
		})
	default:
		err = gone(fmt.Errorf("there is no table %.40q that can be cleared; take one of %s, %s, %s, %s", name, tableMACs, tableFlows, tableWords, tableRows))
	}
	return n, err
}
