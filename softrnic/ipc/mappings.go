package ipc

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"unsafe"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
)

// mapping is an object with memory that is unmapped when the object goes, or with its context.
type mapping interface{ unmap() }

// mappings are the memory that a context has mapped. They are safe for concurrent use.
type mappings struct {
	mu       sync.Mutex // guards the fields below
	memories map[*memory]struct{}
	objects  map[mapping]struct{}
}

// remember makes close unmap the memory of an object.
func (p *mappings) remember(m mapping) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.objects[m] = struct{}{}
}

// forget is for an object whose memory was unmapped.
func (p *mappings) forget(m mapping) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.objects, m)
}

func (p *mappings) add(m *memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memories[m] = struct{}{}
}

func (p *mappings) drop(m *memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.memories, m)
}

// memoryOf finds the memory that b lies in, and the offset there; nil if there is none.
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

// close unmaps everything.
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
