package chains

import (
	"bytes"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/redn/hopscotch"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// tableLen is the number of buckets of a table of lookups. Each key has two, by two hashes.
const tableLen = 256

// lookedUp is the table of lookups. Clients ask for keys. If both is true, each of them is in its
// second bucket, because a key of firsts has its first one, and a request names both. Otherwise each
// key is in its first bucket, which alone a request names. Client and server choose the same keys.
type lookedUp struct {
	shape        hopscotch.Shape
	both         bool
	firsts, keys []redn.Operand
}

func lookUp(way string, n, value int) *lookedUp {
	t := &lookedUp{both: way == experiment.WaySequential || way == experiment.WayParallel}
	t.shape = hopscotch.Shape{Len: tableLen, Hashes: 2, Neighbourhood: 1, Values: 2 * n, Value: value}
	if way == experiment.WayRecycled {
		t.shape.Form = hopscotch.Slots
	}
	used := map[int]bool{}
	for key := keyAt(0); len(t.keys) < n; key++ {
		first, second := t.shape.Home(key, 0), t.shape.Home(key, 1)
		if first == second || used[first] || used[second] {
			continue
		}
		used[first], used[second] = true, true
		t.keys = append(t.keys, key)
		if t.both {
			other := key + 1<<32
			for t.shape.Home(other, 0) != first {
				other++
			}
			t.firsts = append(t.firsts, other)
		}
	}
	return t
}

// fill inserts the keys. The value of key i has the bytes i+1, i+2 and so on.
func (t *lookedUp) fill(mr verbs.MR) error {
	table, err := hopscotch.New(t.shape, mr, redn.MemOf(mr))
	if err != nil {
		return err
	}
	value := make([]byte, t.shape.Value)
	for _, key := range t.firsts {
		if err := table.Insert(key, value); err != nil {
			return err
		}
	}
	for i, key := range t.keys {
		for j := range value {
			value[j] = byte(i + j + 1)
		}
		if err := table.Insert(key, bytes.Clone(value)); err != nil {
			return err
		}
	}
	return nil
}

func (t *lookedUp) bucketAt(i int) int { return t.shape.Home(t.keys[i], 0) * t.shape.BucketLen() }

// request returns what a client sends to a program for key i. base is the address of the table.
func (t *lookedUp) request(i int, base uint64) []byte {
	if t.both {
		return t.shape.AppendRequest(nil, t.keys[i], base)
	}
	return redn.AppendProbe(nil, t.keys[i], base+uint64(t.bucketAt(i)))
}
