package bytekeys

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Numbered makes a Client a kv.Store, whose keys are numbers. Checks of stores, which use numbers
// as keys, can then check a Client.
type Numbered struct {
	*Client
	// Name returns the byte-string key that a number stands for.
	Name func(number uint64) []byte
}

var _ kv.Upserter = Numbered{}

func (n Numbered) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	return n.Client.Get(n.Name(key), dst, deadline)
}

func (n Numbered) Put(key uint64, value []byte, deadline clock.Time) error {
	return n.Client.Put(n.Name(key), value, deadline)
}

func (n Numbered) Insert(key uint64, value []byte, deadline clock.Time) error {
	return n.Client.Insert(n.Name(key), value, deadline)
}

func (n Numbered) Upsert(key uint64, value []byte, deadline clock.Time) error {
	return n.Client.Upsert(n.Name(key), value, deadline)
}

func (n Numbered) Delete(key uint64, deadline clock.Time) error {
	return n.Client.Delete(n.Name(key), deadline)
}
