package trace

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/store/kv"
)

// Formats are the names of the formats that Convert reads.
var Formats = []string{"twitter", "cachelib"}

// Converted is a trace in the format of this package.
type Converted struct {
	Ops []kv.Op
	// Keys and Clients are how many keys and clients the trace has. They have numbers from 0 on, in
	// the order of their first operations.
	Keys, Clients int
	// Skipped counts lines with operations that a store does not have.
	Skipped int
}

// Convert reads a trace in another format. If limit is positive, it converts at most limit
// operations.
//
// twitter: the cache traces of Twitter (OSDI 2020; github.com/twitter/cache-trace). They have seven
// columns without a header: time in seconds, key, length of the key, length of the value, client,
// operation, time to live. Convert distributes the operations of each second evenly over the
// second.
//
// cachelib: the key-value traces that CacheBench replays (github.com/facebook/CacheLib). A header
// names the columns; key, op and size must be among them. op_count is how many times the operation
// is executed. Without op_time all times are 0. These traces have no clients. Convert gives each
// key one of cachelibClients clients, so that the operations on a key stay in order.
func Convert(r io.Reader, format string, limit int) (*Converted, error) {
	c := &converter{limit: limit, keys: map[string]int{}, clients: map[string]int{}}
	var err error
	switch format {
	case "twitter":
		err = lines(r, func(text string, _ int) error { return c.twitter(text) })
		sortByTime(c.out.Ops)
		spread(c.out.Ops)
	case "cachelib":
		err = lines(r, c.cachelib)
		sortByTime(c.out.Ops)
		for i := range c.out.Ops {
			c.out.Clients = max(c.out.Clients, c.out.Ops[i].Client+1)
		}
	default:
		return nil, fmt.Errorf("unknown format %.20q: want %s", format, strings.Join(Formats, " or "))
	}
	if err != nil {
		return nil, err
	}
	c.out.Keys, c.out.Clients = len(c.keys), max(c.out.Clients, len(c.clients))
	return &c.out, nil
}

// cachelibClients is the number of clients that a trace without clients gets.
const cachelibClients = 64

type converter struct {
	limit         int
	keys, clients map[string]int // numbers by name
	columns       map[string]int // columns by name, from the header of a cachelib trace
	width         int            // the number of columns in that header
	start         int64          // the time of the first operation, in seconds
	out           Converted
}

// number returns the number of a name in the map `of`. A name that is not in the map gets the next
// number.
func number(of map[string]int, name string) int {
	n, ok := of[name]
	if !ok {
		n = len(of)
		of[name] = n
	}
	return n
}

// at returns the time of an operation since the first one.
func (c *converter) at(column, text string) (time.Duration, error) {
	sec, err := natural(column, text, math.MaxInt64/int64(time.Second)-1)
	if len(c.out.Ops) == 0 {
		c.start = sec
	}
	return time.Duration(max(0, sec-c.start)) * time.Second, err
}

var twitterOps = map[string]kv.Kind{
	"get": kv.KindRead, "gets": kv.KindRead, "add": kv.KindInsert, "delete": kv.KindDelete, "set": kv.KindUpdate, "replace": kv.KindUpdate,
	"cas": kv.KindUpdate, "append": kv.KindUpdate, "prepend": kv.KindUpdate, "incr": kv.KindUpdate, "decr": kv.KindUpdate,
}

func (c *converter) twitter(text string) error {
	f := strings.Split(text, ",")
	if len(f) < 7 {
		return fmt.Errorf("%d columns: want time, key, key size, value size, client, operation, TTL", len(f))
	}
	tail := f[len(f)-5:] // a key may contain commas
	key := strings.Join(f[1:len(f)-5], ",")
	at, err := c.at("time", f[0])
	if err != nil {
		return err
	}
	size, err := natural("value size", tail[1], maxSize)
	if err != nil {
		return err
	}
	kind, ok := twitterOps[tail[3]]
	if !ok {
		c.out.Skipped++
		return nil
	}
	if _, ok := c.clients[tail[2]]; !ok && len(c.clients) > maxClient {
		return fmt.Errorf("more than %d clients: give a --limit", maxClient+1)
	}
	return c.add(kv.Op{At: at, Client: number(c.clients, tail[2]), Kind: kind, Key: uint64(number(c.keys, key)), Size: int(size)}, 1)
}

var cachelibOps = map[string]kv.Kind{
	"GET": kv.KindRead, "GET_LEASE": kv.KindRead, "SET": kv.KindUpdate, "SET_LEASE": kv.KindUpdate, "DELETE": kv.KindDelete,
}

func (c *converter) cachelib(text string, line int) (err error) {
	f := strings.Split(text, ",")
	if line == 1 {
		c.columns, c.width = map[string]int{}, len(f)
		for i, name := range f {
			name = strings.TrimSpace(name)
			if _, ok := c.columns[name]; ok && name != "" {
				return fmt.Errorf("column %.60s is named twice", name)
			}
			c.columns[name] = i
		}
		for _, name := range []string{"key", "op", "size"} {
			if _, ok := c.columns[name]; !ok {
				return fmt.Errorf("%.60q is no header of a CacheLib trace: it has no column %s", text, name)
			}
		}
		return nil
	}
	if len(f) < c.width {
		return fmt.Errorf("%d columns, and the header has %d", len(f), c.width)
	}
	column := func(name, otherwise string) string {
		if i, ok := c.columns[name]; ok {
			return f[i]
		}
		return otherwise
	}
	kind, ok := cachelibOps[column("op", "")]
	if !ok {
		c.out.Skipped++
		return nil
	}
	count, err := natural("op_count", column("op_count", "1"), MaxOps)
	if err != nil {
		return err
	}
	size, err := natural("size", column("size", ""), maxSize)
	if err != nil {
		return err
	}
	at, err := c.at("op_time", column("op_time", "0"))
	if err != nil {
		return err
	}
	if count == 0 {
		return nil
	}
	key := number(c.keys, column("key", ""))
	return c.add(kv.Op{At: at, Client: key % cachelibClients, Kind: kind, Key: uint64(key), Size: int(size)}, count)
}

// add appends an operation to the trace, count times.
func (c *converter) add(op kv.Op, count int64) (err error) {
	if op.Kind == kv.KindRead || op.Kind == kv.KindDelete {
		op.Size = 0
	}
	for ; count > 0 && err == nil; count-- {
		c.out.Ops, err = add(c.out.Ops, op, c.limit)
	}
	return err
}

// spread distributes the operations of each second evenly over the second. ops is sorted by time.
func spread(ops []kv.Op) {
	for from := 0; from < len(ops); {
		to := from
		for to < len(ops) && ops[to].At == ops[from].At {
			to++
		}
		second := ops[from].At
		for i := from; i < to; i++ {
			ops[i].At = second + time.Second*time.Duration(i-from)/time.Duration(to-from)
		}
		from = to
	}
}

func (c *Converted) Describe() string {
	text := strconv.Itoa(len(c.Ops)) + " operations of " + strconv.Itoa(c.Clients) + " clients on " + strconv.Itoa(c.Keys) + " keys"
	if c.Skipped > 0 {
		text += fmt.Sprintf("; %d lines with other operations were left out", c.Skipped)
	}
	return text
}
