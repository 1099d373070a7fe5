package verbs

// Allocator is a Context whose NIC can only reach memory of its own: RegMR takes nil, or memory
// from Alloc.
type Allocator interface {
	Alloc(length int) ([]byte, error)
	// Free frees memory of Alloc. It fails with ErrBusy while the memory has regions.
	Free([]byte) error
}

// Buffer allocates memory that can be registered with any Context. free frees it.
func Buffer(ctx Context, length int) (b []byte, free func() error, err error) {
	a, ok := ctx.(Allocator)
	if !ok {
		return make([]byte, length), func() error { return nil }, nil
	}
	b, err = a.Alloc(length)
	return b, func() error { return a.Free(b) }, err
}
