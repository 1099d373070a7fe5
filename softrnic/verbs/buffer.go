package verbs

// Allocator is a Context whose NIC cannot reach any memory of the program: RegMR takes nil, or
// memory that Alloc has made.
type Allocator interface {
	Alloc(length int) ([]byte, error)
	// Free frees memory of Alloc; ErrBusy while regions of it are left.
	Free([]byte) error
}

// Buffer makes memory that can be registered with any Context, and what gives it back.
func Buffer(ctx Context, length int) (b []byte, free func() error, err error) {
	a, ok := ctx.(Allocator)
	if !ok {
		return make([]byte, length), func() error { return nil }, nil
	}
	b, err = a.Alloc(length)
	return b, func() error { return a.Free(b) }, err
}
