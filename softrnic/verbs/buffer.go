package verbs

// Allocator is a Context whose NIC can access only memory from Alloc. Its RegMR takes nil or such
// memory.
type Allocator interface {
	Alloc(length int) ([]byte, error)
	// Free frees memory of Alloc. It fails with ErrBusy while the memory has regions.
	Free([]byte) error
}

// Buffer allocates memory that can be registered with ctx, whether ctx is an Allocator or not. The
// function `free` frees the memory.
func Buffer(ctx Context, length int) (b []byte, free func() error, err error) {
	a, ok := ctx.(Allocator)
	if !ok {
		return make([]byte, length), func() error { return nil }, nil
	}
	b, err = a.Alloc(length)
	return b, func() error { return a.Free(b) }, err
}
