// Command conversion-webhook is a conversion webhook as operators write it with controller-runtime: a hub, a spoke, and two
// functions between them. `cargo xtask bench-convert` compares restow's webhook with it.
package main

import (
	"flag"
	"log"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	webhookconversion "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
)

// legacyAnnotation keeps the one field that v1 does not have.
const legacyAnnotation = "example.com/legacy"

// Variable is the same in both versions.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// OldBackup is the version v1beta1, the spoke.
type OldBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              OldBackupSpec `json:"spec"`
}

// OldBackupSpec has a colour by its old name, and an address in one string.
type OldBackupSpec struct {
	Color  string     `json:"color"`
	Target string     `json:"target"`
	Env    []Variable `json:"env,omitempty"`
	Legacy *string    `json:"legacy,omitempty"`
}

// Backup is the version v1, the hub.
type Backup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              BackupSpec `json:"spec"`
}

// BackupSpec has the address in two fields.
type BackupSpec struct {
	Colour string     `json:"colour"`
	Host   string     `json:"host"`
	Port   int64      `json:"port"`
	Env    []Variable `json:"env,omitempty"`
}

// Hub marks the version that all others are converted through.
func (*Backup) Hub() {}

// ConvertTo makes a v1 of a v1beta1.
func (old *OldBackup) ConvertTo(hub conversion.Hub) error {
	backup := hub.(*Backup)
	backup.ObjectMeta = old.ObjectMeta
	host, port, _ := strings.Cut(old.Spec.Target, ":")
	number, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		return err
	}
	backup.Spec = BackupSpec{Colour: old.Spec.Color, Host: host, Port: number, Env: old.Spec.Env}
	if old.Spec.Legacy != nil {
		metav1.SetMetaDataAnnotation(&backup.ObjectMeta, legacyAnnotation, *old.Spec.Legacy)
	}
	return nil
}

// ConvertFrom makes a v1beta1 of a v1.
func (old *OldBackup) ConvertFrom(hub conversion.Hub) error {
	backup := hub.(*Backup)
	old.ObjectMeta = backup.ObjectMeta
	target := backup.Spec.Host + ":" + strconv.FormatInt(backup.Spec.Port, 10)
	old.Spec = OldBackupSpec{Color: backup.Spec.Colour, Target: target, Env: backup.Spec.Env}
	if legacy, kept := old.Annotations[legacyAnnotation]; kept {
		old.Spec.Legacy = &legacy
		delete(old.Annotations, legacyAnnotation)
	}
	return nil
}

// DeepCopyObject makes it a runtime.Object.
func (old *OldBackup) DeepCopyObject() runtime.Object {
	copied := *old
	old.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	copied.Spec.Env = append([]Variable(nil), old.Spec.Env...)
	return &copied
}

// DeepCopyObject makes it a runtime.Object.
func (backup *Backup) DeepCopyObject() runtime.Object {
	copied := *backup
	backup.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	copied.Spec.Env = append([]Variable(nil), backup.Spec.Env...)
	return &copied
}

func main() {
	port := flag.Int("port", 9443, "the port to listen on, on loopback")
	certDir := flag.String("cert-dir", "", "the folder of tls.crt and tls.key")
	flag.Parse()

	scheme := runtime.NewScheme()
	kind := func(version string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Backup"}
	}
	scheme.AddKnownTypeWithName(kind("v1beta1"), &OldBackup{})
	scheme.AddKnownTypeWithName(kind("v1"), &Backup{})

	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certDir})
	server.Register("/convert", webhookconversion.NewWebhookHandler(scheme, webhookconversion.NewRegistry()))
	server.Register("/healthz", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err := server.Start(signals.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
