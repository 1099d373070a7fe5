package memcached

// Table is the table in which a Server stores items. Any goroutine may call its methods. Errors are
// those of kv.Store.
type Table interface {
	// Read appends the value of a key to dst[:0] and returns it with its version. No other value of
	// the table has, had or will have that version.
	Read(key uint64, dst []byte) (value []byte, version uint64, err error)
	// Update calls the function `change` with the value of a key, or nil if there is none, and then
	// does what change has returned. No other call changes the table meanwhile. The value is valid
	// during the call of change, which must not call methods of the Table.
	Update(key uint64, change func(value []byte, version uint64) (next []byte, do Change)) error
	// Sweep deletes all keys for which f returns true. No other call changes the table meanwhile. f
	// must not call methods of the Table.
	Sweep(f func(key uint64, value []byte) (remove bool)) error
	// Keys returns how many keys there are, MaxKeys for how many there is room, and MaxValue the
	// length of the longest value in bytes.
	Keys() int
	MaxKeys() int
	MaxValue() int
}

// Change is what Table.Update does with the value of a key.
type Change uint8

// Values of Change.
const (
	Keep   Change = iota // nothing
	Store                // next becomes the value
	Remove               // the key is deleted
)
