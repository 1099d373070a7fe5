package leaf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// look is the interval at which the state of the switch is looked at.
const look = 250 * time.Millisecond

// program is a leaf that runs.
type program struct {
	cfg    Config
	client client.Client
	ended  chan error  // the switch has ended, or the leaf is to
	begin  chan *slice // the slice whose switch is to start
	// pending says that the switch does not have the description yet. It is Reconcile's, which runs once at a time.
	pending bool

	mu      sync.Mutex // guards the fields below
	slice   *slice
	refused string
	serving bool
	name    string // of the own RackLeaf
}

// Run runs the leaf until ctx ends.
func Run(ctx context.Context, rc *rest.Config, cfg Config) error {
	s, err := prepare(cfg)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	only := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{v1alpha1.LabelRack: cfg.Rack})}
	mgr, err := ctrl.NewManager(rc, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{cfg.Namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&v1alpha1.RackLeaf{}: only},
		},
	})
	if err != nil {
		return err
	}
	p := &program{cfg: cfg, client: mgr.GetClient(), slice: s, ended: make(chan error, 3), begin: make(chan *slice, 1)}
	if err := ctrl.NewControllerManagedBy(mgr).For(&v1alpha1.RackLeaf{}).Complete(p); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { p.end(mgr.Start(ctx)) })
	wg.Go(func() { p.tell(ctx) })
	wg.Go(func() { p.serve(ctx) })
	srv := &http.Server{Addr: cmp.Or(cfg.Listen, ":7470"), Handler: http.HandlerFunc(p.ready), ReadHeaderTimeout: time.Second}
	defer srv.Close() // no client waits for an answer any more
	wg.Go(func() {
		if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			p.end(err)
		}
	})
	select {
	case err := <-p.ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// end ends the leaf.
func (p *program) end(err error) {
	select {
	case p.ended <- err:
	default: // it ends already
	}
}

// Reconcile looks at all RackLeafs of the rack, of which one has changed.
func (p *program) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var list v1alpha1.RackLeafList
	if err := p.client.List(ctx, &list, client.InNamespace(p.cfg.Namespace)); err != nil {
		return ctrl.Result{}, err
	}
	changed, err := p.take(list.Items)
	if err != nil {
		p.end(err)
		return ctrl.Result{}, nil
	}
	p.pending = p.pending || changed
	return ctrl.Result{}, p.bring(ctx)
}

// take takes the RackLeafs of the rack, and reports whether the description has changed.
func (p *program) take(list []v1alpha1.RackLeaf) (changed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range list {
		if list[i].Spec.Node == p.cfg.Node {
			p.name = list[i].Name
		}
	}
	p.refused, changed, err = p.slice.take(list)
	return changed, err
}

// bring brings a description that has changed to the switch. After an error it is still pending.
func (p *program) bring(ctx context.Context) error {
	if !p.pending {
		return nil
	}
	if err := p.slice.write(); err != nil {
		return err
	}
	p.mu.Lock()
	served := p.serving
	p.serving = true
	p.mu.Unlock()
	if !served {
		p.begin <- p.slice
	} else if err := p.slice.reload(ctx); err != nil {
		return fmt.Errorf("the switch reads the description again: %w", err)
	}
	p.pending = false
	return nil
}

// serve runs the switch, as soon as there is a slice, until ctx ends.
func (p *program) serve(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case s := <-p.begin:
		if err := s.serve(ctx); ctx.Err() == nil {
			p.end(fmt.Errorf("the switch has ended: %w", err))
		}
	}
}

// status returns what the RackLeaf is to say, and the RackLeaf's name; "" if there is none.
func (p *program) status(ctx context.Context) (v1alpha1.RackLeafStatus, string, error) {
	p.mu.Lock()
	s, name, refused, serving := p.slice, p.name, p.refused, p.serving
	p.mu.Unlock()
	if !serving {
		return v1alpha1.RackLeafStatus{Version: p.cfg.Version, Refused: refused}, name, nil
	}
	st, err := s.status(ctx)
	return st, name, err
}

// tell writes the status of the RackLeaf when it changes, until ctx ends. While the API server does not answer, it
// goes on trying.
func (p *program) tell(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := p.tellOnce(ctx); err != nil && ctx.Err() == nil {
			if text := err.Error(); text != said {
				said = text
				p.cfg.Log.Warn("status", "error", err)
			}
		}
	}
}

func (p *program) tellOnce(ctx context.Context) error {
	st, name, err := p.status(ctx)
	if err != nil || name == "" {
		return err
	}
	var l v1alpha1.RackLeaf
	if err := p.client.Get(ctx, client.ObjectKey{Namespace: p.cfg.Namespace, Name: name}, &l); err != nil {
		return client.IgnoreNotFound(err)
	}
	// What counts is what the API server has, and not what this leaf has written last: a request that was given up when the
	// network was cut may arrive when it heals, with a state of the past.
	if equality.Semantic.DeepEqual(st, l.Status) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	next := l.DeepCopy()
	next.Status = st
	if err := p.client.Status().Patch(ctx, next, client.MergeFrom(&l)); err != nil {
		return fmt.Errorf("write the status of %s: %w", name, err)
	}
	return nil
}

// ready answers 200 if the switch answers.
func (p *program) ready(w http.ResponseWriter, r *http.Request) {
	st, _, err := p.status(r.Context())
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case st.Epoch == 0:
		http.Error(w, cmp.Or(st.Refused, "the RackLeaf of this node has not come yet"), http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "ready")
	}
}
