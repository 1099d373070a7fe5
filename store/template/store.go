package template

import (
	"cmp"
	_ "embed" // of help.md
	"fmt"
	"math/rand/v2"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

//go:embed help.md
var helpText string

// Table describes the store to the daemon of a host, the command line and `rdmalab sim`.
var Table = store.Table[Shape, *Client]{
	Store: store.Store{
		Name: "template", Title: "the template", Note: "the example for writing a new store",
		Commands: store.Commands{
			Short: "Run the template of a store on the rack, a hash table to copy",
			Help:  helpText,
		},
	},
	Format: Format, Open: Open, Flags: flags, Draw: draw,
}

func init() { Table.Register() }

func flags(fs *pflag.FlagSet, s *Shape) {
	fs.IntVar(&s.Value, "value", 0, fmt.Sprintf("longest value, in bytes, 1 to %d (default %d)", maxValue, defaultValue))
	fs.IntVar(&s.Slots, "slots", 0, fmt.Sprintf("how many keys each memory server can hold, deleted ones included, 1 to %d (default: half as many as values of --value bytes fit "+
		"into its memory; clients need the other half to write new values before they replace old ones)", maxObjects))
}

// draw chooses at random a table for `rdmalab sim template`. The table is small, so that operations
// often meet at the same keys.
func draw(r *rand.Rand) (Shape, store.Trial) {
	s := Shape{Value: 16 << r.IntN(6), Slots: 16 + r.IntN(20)}
	return s, store.Trial{
		Plan: fmt.Sprintf("%d slots, values to %d bytes", s.Slots, s.Value), Memory: 128 << 10, Largest: s.Value, Crashes: true, Loss: true,
	}
}

// Format makes an empty table; see passive.Form.Format. It uses Value and Slots of the shape, and
// computes Objects. A Value of 0 stands for the default. Slots of 0 stands for one slot for every
// two objects.
func Format(cfg passive.Config, s Shape, deadline clock.Time) (Shape, error) {
	if s.Value < 0 || s.Value > maxValue || s.Slots < 0 || s.Slots > maxObjects {
		return s, fmt.Errorf("a table with %d slots and values of %d bytes: want at most %d and %d", s.Slots, s.Value, maxObjects, maxValue)
	}
	err := form.Format(cfg, func(memory int) (passive.Numbers, uint64, error) {
		s.Value, s.Objects = cmp.Or(s.Value, defaultValue), 0
		room := min(memory, maxObjects<<15) - int(Shape{Value: s.Value}.objectAt(1)) // bytes for slots and objects
		s.Slots = cmp.Or(s.Slots, min(maxObjects, max(0, room)/(slotLen+2*s.objectLen())))
		if s.Objects = min(maxObjects, (room-s.Slots*slotLen)/s.objectLen()); s.size() == 0 {
			return passive.Numbers{}, 0, fmt.Errorf("%w: %d bytes of a memory server have no room for %d slots and an object of %d bytes", kv.ErrFull, memory, s.Slots, s.objectLen())
		}
		return s.numbers(), s.objectAt(1), nil
	}, deadline)
	return s, err
}

// Client is one client of a table. It is used by one thread at a time.
type Client struct {
	passive.Client
	shape  Shape
	spare  []uint32 // the client's spare object on each server; 0 means none
	object []byte   // the object that was read, or is to be written
}

var _ kv.Timed = (*Client)(nil)

// Open connects to a table; see passive.Form.Join.
func Open(cfg passive.Config, deadline clock.Time) (*Client, error) {
	conn, super, err := form.Join(cfg, deadline)
	if err != nil {
		return nil, err
	}
	s := shapeOf(super.Numbers)
	return &Client{Client: conn.NewClient(s.Value), shape: s, spare: make([]uint32, conn.Servers())}, nil
}

// Shape describes the table.
func (c *Client) Shape() Shape { return c.shape }
