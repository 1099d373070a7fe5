package operator

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// Config says how the operator runs.
type Config struct {
	Image, Version string
	// PullPolicy is that of leaves and hosts; "" means IfNotPresent.
	PullPolicy corev1.PullPolicy
	// LogFormat is that of leaves and hosts, text or json; "" means text.
	LogFormat string
	// Lease is the namespace of the Lease by which one of several operators works; "" means that there is none.
	Lease string
	// Probes is the address of /healthz; "" means none.
	Probes string
}

// Run runs the operator until ctx ends.
func Run(ctx context.Context, rc *rest.Config, cfg Config) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	ours, err := labels.NewRequirement(v1alpha1.LabelRack, selection.Exists, nil)
	if err != nil {
		return err
	}
	of := cache.ByObject{Label: labels.NewSelector().Add(*ours)}
	mgr, err := ctrl.NewManager(rc, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: cfg.Probes, Controller: config.Controller{SkipNameValidation: ptr(true)},
		LeaderElection: cfg.Lease != "", LeaderElectionNamespace: cfg.Lease, LeaderElectionID: "rdmalab-operator", LeaderElectionReleaseOnCancel: true,
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: of, &appsv1.DaemonSet{}: of, &appsv1.StatefulSet{}: of,
		}},
	})
	if err != nil {
		return err
	}
	r := &Reconciler{Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Scheme: scheme, Events: mgr.GetEventRecorder("rdmalab-operator"), Image: cfg.Image, Version: cfg.Version, PullPolicy: cfg.PullPolicy, LogFormat: cfg.LogFormat}
	if err := r.Setup(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&v1alpha1.Rack{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&v1alpha1.RackLeaf{}).Owns(&appsv1.DaemonSet{}).Owns(&appsv1.StatefulSet{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(rackOfPod)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.allRacks), builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Complete(r)
}

// rackOfPod returns the Rack of a Pod.
func rackOfPod(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[v1alpha1.LabelRack]}}}
}

// allRacks returns all Racks: a node may be of any.
func (r *Reconciler) allRacks(ctx context.Context, _ client.Object) (out []reconcile.Request) {
	list := new(v1alpha1.RackList)
	if err := r.Client.List(ctx, list); err != nil {
		return nil // the next event of a node, or the resync, tries again
	}
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// nodeChanged passes only what the operator decides by: not the heartbeats.
func nodeChanged(e event.UpdateEvent) bool {
	a, ok := e.ObjectOld.(*corev1.Node)
	b, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 || works(a) != works(b) || offers(a) != offers(b) || a.Spec.Unschedulable != b.Spec.Unschedulable || len(a.Spec.Taints) != len(b.Spec.Taints)
}
