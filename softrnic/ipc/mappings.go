package ipc

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"unsafe"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
)

// mapping is an object with memory that is unmapped when the object or its context ends. The caller
// of release holds the locks of the object; unmap takes these locks and then calls release.
type mapping interface {
	unmap()
	release()
}

// mappings is the memory that a context has mapped. Its methods are safe for concurrent use.
type mappings struct {
	mu       sync.Mutex // guards the fields below
	memories map[*memory]struct{}
	objects  map[mapping]struct{}
}

// remember registers an object, so that the method close unmaps the object's memory.
func (p *mappings) remember(m mapping) { p.with(func() { p.objects[m] = struct{}{} }) }

// forget removes an object whose memory was unmapped.
func (p *mappings) forget(m mapping) { p.with(func() { delete(p.objects, m) }) }

func (p *mappings) add(m *memory)  { p.with(func() { p.memories[m] = struct{}{} }) }
func (p *mappings) drop(m *memory) { p.with(func() { delete(p.memories, m) }) }

func (p *mappings) with(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// memoryOf returns the memory that contains b, and the offset of b in this memory; nil if no memory
// contains b.
func (p *mappings) memoryOf(b []byte) (*memory, int) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	p.mu.Lock()
	defer p.mu.Unlock()
	for m := range p.memories {
		base := uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes)))
		if at >= base && at-base < uintptr(len(m.bytes)) && len(b) <= len(m.bytes)-int(at-base) {
			return m, int(at - base)
		}
	}
	return nil, 0
}

func (p *mappings) close() (err error) {
	p.mu.Lock()
	objects := slices.Collect(maps.Keys(p.objects))
	clear(p.objects)
	for m := range p.memories {
		err = errors.Join(err, ring.Unmap(m.bytes))
	}
	clear(p.memories)
	p.mu.Unlock()
	for _, m := range objects {
		m.unmap()
	}
	return err
}
