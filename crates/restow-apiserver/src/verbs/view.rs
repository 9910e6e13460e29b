//! How objects are shown: in which version, and in which form.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};

use crate::http::json;
use crate::http::negotiation::{Accepted, Form};
use crate::http::options::IncludeObject;
use crate::http::status::StatusError;
use crate::object::stored::DecodeScope;
use crate::object::table::{Columns, metadata_of_one};
use crate::registry::conversion::convert;
use crate::registry::custom_resource::ServedDefinition;
use crate::registry::resource::{Implementation, Resource};
use crate::verbs::api::Api;
use crate::verbs::selection::Selection;

/// How objects are shown.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub resource: Arc<Resource>,
    pub version: String,
    /// The group and version.
    pub api_version: String,
    /// The kind of a list of them.
    pub list_kind: String,
    pub form: Form,
    /// The columns of a Table.
    pub columns: Option<Arc<Columns>>,
    /// How much of its object each row of a Table includes.
    pub include: IncludeObject,
}

impl View {
    /// A view of a resource in a version.
    pub(crate) fn new(
        resource: &Arc<Resource>,
        version: &str,
        accepted: Accepted,
        include: IncludeObject,
    ) -> Self {
        let columns = (accepted.form == Form::Table).then(|| {
            Arc::new(match &resource.implementation {
                Implementation::BuiltIn(_) => {
                    Columns::built_in(&resource.name.group, &resource.name.resource)
                }
                Implementation::Custom(custom) => Columns::custom(custom.columns(version)),
            })
        });
        Self {
            version: version.to_owned(),
            api_version: resource.api_version(version),
            list_kind: resource.list_kind.clone(),
            form: accepted.form,
            columns,
            include,
            resource: Arc::clone(resource),
        }
    }

    /// How much of an object must be decoded to select and show it.
    pub(crate) fn decode_scope(&self, selection: &Selection) -> DecodeScope {
        let converted = self.resource.custom().is_some_and(|custom| custom.has_webhook());
        if self.form == Form::Metadata && selection.is_of_metadata() && !converted {
            DecodeScope::Metadata
        } else {
            DecodeScope::Whole
        }
    }

    /// Defaults stored objects, before they are converted.
    pub(crate) fn set_defaults(&self, stored: &mut [Value]) {
        if let Some(custom) = self.shaped_by() {
            stored.iter_mut().for_each(|object| custom.set_defaults(object));
        }
    }

    /// Converts objects to the version of the view.
    pub(crate) async fn converted(&self, api: &Api, complete: Vec<Value>) -> Result<Vec<Value>, StatusError> {
        convert(&*api.converter, &self.resource, &self.api_version, complete).await
    }

    /// Prunes fields of converted objects that the version does not have.
    pub(crate) fn prune(&self, converted: &mut [Value]) {
        if let Some(custom) = self.shaped_by() {
            converted.iter_mut().for_each(|object| custom.prune(&self.version, object));
        }
    }

    /// The definition whose schemas apply, if any.
    fn shaped_by(&self) -> Option<&Arc<ServedDefinition>> {
        self.resource.custom().filter(|_| self.form != Form::Metadata)
    }

    /// A stored object in the version of the view.
    pub(crate) async fn object(&self, api: &Api, stored: Value) -> Result<Value, StatusError> {
        let mut objects = vec![stored];
        self.set_defaults(&mut objects);
        let mut objects = self.converted(api, objects).await?;
        self.prune(&mut objects);
        objects.pop().ok_or_else(|| StatusError::plain("the conversion returned no object"))
    }

    /// An object as an item of a list. Built-in items have no kind and apiVersion.
    pub(crate) fn item(&self, mut object: Value) -> Value {
        if let (Implementation::BuiltIn(_), Form::Whole, Some(fields)) =
            (&self.resource.implementation, self.form, object.as_object_mut())
        {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        object
    }

    /// Appends an object as an item of a list.
    pub(crate) fn append_item(&self, bytes: &mut BytesMut, object: Value) {
        match self.form {
            Form::Whole => json::append(bytes, &object),
            Form::Metadata => json::append(bytes, &partial(object)),
            Form::Table => json::append(bytes, &self.row(&object)),
        }
    }

    /// Appends a single object, as in a watch.
    pub(crate) fn append_one(&self, bytes: &mut BytesMut, object: Value, columns: bool) {
        match self.form {
            Form::Whole | Form::Metadata => self.append_item(bytes, object),
            Form::Table => {
                let mut table = json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata_of_one(&object),
                    "rows": [self.row(&object)],
                });
                table["columnDefinitions"] = if columns { self.headers() } else { Value::Null };
                json::append(bytes, &table);
            }
        }
    }

    /// A single object as a response body.
    pub(crate) fn answer(&self, object: Value) -> Bytes {
        let mut bytes = BytesMut::with_capacity(1024);
        self.append_one(&mut bytes, object, true);
        bytes.put_u8(b'\n');
        bytes.freeze()
    }

    /// The column definitions of a Table.
    pub(crate) fn headers(&self) -> Value {
        self.columns.as_ref().map(|columns| columns.definitions()).unwrap_or_default()
    }

    fn row(&self, object: &Value) -> Value {
        let row = |columns: &Arc<Columns>| columns.table_row("v1", object, self.include, restow_clock::now());
        self.columns.as_ref().map(row).unwrap_or_default()
    }
}

/// The PartialObjectMetadata of an object.
pub(crate) fn partial(mut object: Value) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"].take(),
    })
}
