package hostd

import (
	"net/http"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// beginHang stops the threads of services and jobs, as on a machine whose processors hang. The NIC
// goes on: it executes requests of peers, and programs of work requests. endHang ends the hang,
// and so does a crash of the application or of the NIC.
func (a *application) beginHang() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.works(); err != nil {
		return err
	}
	a.stood = a.stores.status()
	a.hang.Begin()
	a.h.dev.With(func(*engine.Engine) {}) // waits until the threads that are inside the NIC have left it
	a.h.log.Info("application hangs")
	return nil
}

// endHang lets the threads go on. The caller holds mu.
func (a *application) endHang() {
	a.stood = nil
	a.hang.End()
}

func (a *application) resume() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.hang.On() {
		return control.Errorf(http.StatusConflict, "the programs of %s do not hang", a.h.self.Name)
	}
	a.endHang()
	a.h.log.Info("application goes on")
	return nil
}

// works returns an error if the application has crashed or hangs. The caller holds mu.
func (a *application) works() error {
	switch name := a.h.self.Name; {
	case !a.running:
		return control.Errorf(http.StatusConflict, "the application of %s has crashed; restart it", name)
	case a.hang.On():
		return control.Errorf(http.StatusConflict, "the programs of %s hang; `rdmalab resume %s --app` ends it", name, name)
	}
	return nil
}

// context opens the NIC for a service or a job. Calls of the returned context stop during a hang.
func (a *application) context() verbs.Context { return a.h.dev.HangingContext(&a.hang) }

// awake wraps the handler of a request for a store. While the application hangs, awake refuses the
// request, because threads of the store may have stopped while they hold the store's locks.
func (a *application) awake(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		var err error
		if a.hang.On() {
			err = a.works()
		}
		a.mu.Unlock()
		if err != nil {
			control.WriteError(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hangingManager is the host's connection manager for services and jobs. While the application
// hangs, it accepts no connection request of a peer.
type hangingManager struct {
	rdmacm.Manager
	hang *device.Hang
}

func (m hangingManager) Listen(service string) (rdmacm.Listener, error) {
	l, err := m.Manager.Listen(service)
	if err != nil {
		return nil, err
	}
	return hangingListener{l, m.hang}, nil
}

type hangingListener struct {
	rdmacm.Listener
	hang *device.Hang
}

func (l hangingListener) Accept(deadline clock.Time) (rdmacm.Request, error) {
	r, err := l.Listener.Accept(deadline)
	l.hang.Wait()
	return r, err
}
