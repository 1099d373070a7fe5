package operator

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// removeLook is the pause between two looks at what is left of a rack.
const removeLook = time.Second

// remove takes a rack away. The finalizer stays until no Pod of it is left on a node that works, so that the CNI
// plugin has taken their links away; the rest goes by owner references.
func (r *Reconciler) remove(ctx context.Context, k *v1alpha1.Rack) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(k, v1alpha1.Finalizer) {
		return ctrl.Result{}, nil
	}
	before := k.DeepCopy()
	if k.Status.Phase != v1alpha1.PhaseDeleting {
		k.Status.Phase = v1alpha1.PhaseDeleting
		if err := r.write(ctx, before, k); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		before = k.DeepCopy()
	}
	// All of the namespace, since also a workload without the label may have Pods with it.
	own, err := workloadsOf(ctx, r.Direct, client.InNamespace(k.Namespace))
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, o := range own.of(k) {
		uid := o.GetUID()
		err := r.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
	}
	left, lost, err := r.left(ctx, k, own)
	if err != nil {
		return ctrl.Result{}, err
	}
	if left > 0 {
		return ctrl.Result{RequeueAfter: removeLook}, nil
	}
	if lost > 0 {
		r.Events.Eventf(k, nil, corev1.EventTypeWarning, "NodeLost", "Delete",
			"%d Pods of the rack are on nodes that do not work: they go when the nodes are back, or are deleted", lost)
	}
	controllerutil.RemoveFinalizer(k, v1alpha1.Finalizer)
	if err := r.Client.Patch(ctx, k, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("finalizer: %w", err)
	}
	return ctrl.Result{}, nil
}

// left counts the Pods of a rack: those on nodes that work, or on none yet, and the others.
func (r *Reconciler) left(ctx context.Context, k *v1alpha1.Rack, own workloads) (left, lost int, err error) {
	pods, nodes := new(corev1.PodList), new(corev1.NodeList)
	if err := r.Direct.List(ctx, pods, client.InNamespace(k.Namespace), client.MatchingLabels{v1alpha1.LabelRack: k.Name}); err != nil {
		return 0, 0, err
	}
	if err := r.Client.List(ctx, nodes); err != nil {
		return 0, 0, err
	}
	dead := lostNodes(nodes.Items)
	for i := range pods.Items {
		switch p := &pods.Items[i]; {
		case !own.had(k, p): // only the label is the rack's, and anybody may set that
		case dead[p.Spec.NodeName]:
			lost++
		default:
			left++
		}
	}
	return left, lost, nil
}

// lostNodes returns the nodes that do not work.
func lostNodes(nodes []corev1.Node) map[string]bool {
	dead := make(map[string]bool)
	for i := range nodes {
		if !works(&nodes[i]) {
			dead[nodes[i].Name] = true
		}
	}
	return dead
}
